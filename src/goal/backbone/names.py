"""Backbones by name, for people to choose from. Light: lists need no torch."""

EMBEDDED = "digits-vit"
DEFAULT_EMBEDDER = "facebook/dinov2-small"

BACKBONES: dict[str, str] = {
    EMBEDDED: "embedded: small ViT for tiny grey images, self-supervised on digits 0-3",
    "facebook/dino-vitb16": "hub: DINO ViT-B/16, the paper's backbone (self-supervised)",
    "facebook/dino-vits16": "hub: DINO ViT-S/16 (self-supervised)",
    DEFAULT_EMBEDDER: "hub: DINOv2 ViT-S/14, the default for models (self-supervised)",
    "facebook/dinov2-base": "hub: DINOv2 ViT-B/14 (self-supervised)",
    "facebook/dinov2-with-registers-base": "hub: DINOv2 ViT-B/14 with register tokens",
    "microsoft/resnet-50": "hub: ResNet-50 (trained with ImageNet labels)",
}

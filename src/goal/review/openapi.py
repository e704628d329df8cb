"""What `goal serve` answers to, in the words of OpenAPI."""

from typing import Any

_TEXT, _NUMBER, _WHOLE = {"type": "string"}, {"type": "number"}, {"type": "integer"}
_YES_NO = {"type": "boolean"}


def document(version: str) -> dict[str, Any]:
    """The OpenAPI document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "goal serve",
            "version": version,
            "description": "A model of one's own images, which tells the class of others.",
        },
        "paths": {
            "/predict": {"post": _predict()},
            "/classes": {"get": _get("The classes of the model", "Classes")},
            "/health": {"get": _get("Whether the model can answer", "Health")},
        },
        "components": {"schemas": _schemas()},
    }


def _predict() -> dict[str, Any]:
    features = {"type": "array", "items": {"type": "array", "items": _NUMBER}}
    binary = {"schema": {"type": "string", "format": "binary"}}
    return {
        "summary": "The class of an image, or of features of the model's backbone",
        "operationId": "predict",
        "requestBody": {
            "required": True,
            "content": {
                "image/*": binary,
                "application/octet-stream": binary,
                "application/json": {"schema": _object({"features": features})},
            },
        },
        "responses": {
            "200": _answer("One prediction per image or feature", "Predictions"),
            "400": _answer("What was sent cannot be used", "Problem"),
            "413": _answer("What was sent is too large", "Problem"),
            "503": _answer("Too many requests are waiting", "Problem"),
        },
    }


def _get(summary: str, schema: str) -> dict[str, Any]:
    return {
        "summary": summary,
        "operationId": schema.lower(),
        "responses": {
            "200": _answer(summary, schema),
            "400": _answer("The model cannot be read", "Problem"),
        },
    }


def _answer(what: str, schema: str) -> dict[str, Any]:
    reference = {"$ref": f"#/components/schemas/{schema}"}
    return {"description": what, "content": {"application/json": {"schema": reference}}}


def _object(properties: dict[str, Any], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required}


def _schemas() -> dict[str, Any]:
    prediction = {
        "class": _TEXT,
        "class_id": _WHOLE,
        "confidence": _NUMBER,
        "new": _YES_NO,
        "stage": _WHOLE,
    }
    known = {"id": _WHOLE, "name": _TEXT, "stage": _WHOLE, "images": _WHOLE}
    health = {"status": _TEXT, "stage": _WHOLE, "waiting": _WHOLE, "error": _TEXT}
    return {
        "Predictions": _object({"predictions": {"type": "array", "items": _object(prediction)}}),
        "Classes": _object({"classes": {"type": "array", "items": _object(known)}}),
        "Health": _object(health, ("stage", "waiting", "error")),
        "Problem": _object({"error": _TEXT}),
    }

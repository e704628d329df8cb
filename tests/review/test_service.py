"""`goal serve`: predictions over HTTP are those of the model, in batches, within bounds."""

import asyncio
import io
import json
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from goal.common.errors import GoalError
from goal.features.store import FeatureStore
from goal.models.model import Model
from goal.review import service as module
from goal.review.guard import Guard
from goal.review.service import Busy, Queue, Service, application, features_of
from tests.models.digit_folders import screened
from tests.review.conftest import HERE, PORT


def finished(work: Coroutine[Any, Any, Any]) -> Any:
    """What comes of it, in a thread: a browser's tests may have left a loop running in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


@pytest.fixture(scope="module")
def served(grown: Path) -> tuple[Service, TestClient]:
    service = Service(Model(grown / "model"))
    return service, TestClient(Guard(application(service), PORT), base_url=HERE)


def test_images_are_told_their_class_as_on_the_command_line(
    served: tuple[Service, TestClient], grown: Path
) -> None:
    expected = Model(grown / "model").predict(screened(grown / "week"))
    columns = expected.columns()
    for place in range(0, len(expected.names), 9):
        content = Path(expected.names[place]).read_bytes()
        answer = served[1].post("/predict", content=content, headers={"content-type": "image/png"})
        assert answer.status_code == 200
        (found,) = answer.json()["predictions"]
        assert {key: columns[key][place] for key in found} == found
        assert {"class", "class_id", "confidence", "new", "stage"} <= set(found)


def test_features_are_told_the_same_class_as_their_images(
    served: tuple[Service, TestClient], grown: Path
) -> None:
    given = screened(grown / "week")
    store = FeatureStore(grown / "model" / "features")
    rows = store.features(store.find(given.contents({}))).astype(float)
    answer = served[1].post("/predict", json={"features": rows.tolist()})
    expected = Model(grown / "model").predict(given)
    assert [row["class_id"] for row in answer.json()["predictions"]] == expected.ids.tolist()


def test_classes_health_and_description(served: tuple[Service, TestClient], grown: Path) -> None:
    client = served[1]
    listed = client.get("/classes").json()["classes"]
    assert [(row["id"], row["name"]) for row in listed] == [
        (known.id, known.name) for known in Model(grown / "model").roster.classes()
    ]
    assert client.get("/health").json() == {"status": "ok", "stage": 1, "waiting": 0}
    described = client.get("/openapi.json").json()
    assert described["openapi"].startswith("3.") and "post" in described["paths"]["/predict"]
    for path in described["paths"]:
        assert client.options(path).status_code == 405  # it is there, for other methods


def resolved(document: Any, node: Any) -> Any:
    reference = node.get("$ref", "")
    for part in reference.removeprefix("#/").split("/") if reference else []:
        document = document[part]
    return document if reference else node


def test_answers_are_as_the_description_says(
    served: tuple[Service, TestClient], grown: Path
) -> None:
    client = served[1]
    document = client.get("/openapi.json").json()
    picture = sorted((grown / "week").iterdir())[0].read_bytes()
    answers = {
        "/predict": client.post("/predict", content=picture),
        "/classes": client.get("/classes"),
        "/health": client.get("/health"),
    }
    kinds: dict[str, Any] = {
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "array": list,
    }
    for path, answer in answers.items():
        ((_, operation),) = document["paths"][path].items()
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
        schema = resolved(document, schema)
        content = answer.json()
        assert set(schema["required"]) <= set(content) <= set(schema["properties"])
        for value in content.values():
            rows = value if isinstance(value, list) else []
            items = [p.get("items") for p in schema["properties"].values() if "items" in p]
            for row in rows:
                for key, kind in items[0]["properties"].items():
                    assert isinstance(row[key], kinds[kind["type"]]), key


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", "image/png"),
        (b"no image", "image/png"),
        (b"no image", "application/octet-stream"),
        (b"{}", "application/json"),
        (b"[1, 2]", "application/json"),
        (b'{"features": [[1, 2], [3]]}', "application/json"),
        (b'{"features": [[1, 2]]}', "application/json"),
        (b'{"features": [[NaN, 1]]}', "application/json"),
        (b'{"features": []}', "application/json"),
        (b"[" * 100_000, "application/json"),
    ],
)
def test_what_cannot_be_used_is_explained(
    served: tuple[Service, TestClient], content: bytes, kind: str
) -> None:
    answer = served[1].post("/predict", content=content, headers={"content-type": kind})
    assert answer.status_code == 400 and len(answer.json()["error"]) > 20


def test_large_requests_are_refused(served: tuple[Service, TestClient]) -> None:
    large = bytes((32 << 20) + 1)
    assert served[1].post("/predict", content=large).status_code == 413
    many = json.dumps({"features": [[0.0]] * 5000}).encode()
    with pytest.raises(GoalError, match="At most 4,096"):
        features_of(many)


def test_only_this_machine_is_answered(served: tuple[Service, TestClient]) -> None:
    client = served[1]
    for path in ("/classes", "/health", "/openapi.json"):
        assert client.get(path, headers={"host": "evil.example"}).status_code == 421
        assert client.get(path, headers={"origin": "https://evil.example"}).status_code == 403
    headers = {"origin": "https://evil.example"}
    assert client.post("/predict", content=b"x", headers=headers).status_code == 403


def test_a_bad_image_spoils_no_other_of_its_batch(
    served: tuple[Service, TestClient], grown: Path
) -> None:
    good = sorted((grown / "week").iterdir())[0].read_bytes()
    first, bad, second = served[0].answers([good, b"nothing", good])
    assert first == second and isinstance(bad, GoalError)


def test_requests_that_come_together_are_answered_together_and_in_order() -> None:
    batches: list[int] = []

    def predict(contents: list[Any]) -> list[Any]:
        batches.append(len(contents))
        return [[{"said": content}] for content in contents]

    async def ask() -> list[Any]:
        queue = Queue(predict)
        return await asyncio.gather(*(queue.ask(bytes([n])) for n in range(150)))

    answers = finished(ask())
    assert [answer[0]["said"] for answer in answers] == [bytes([n]) for n in range(150)]
    assert batches == [64, 64, 22]


def test_images_and_features_are_never_in_one_batch() -> None:
    seen: list[set[type]] = []

    def predict(contents: list[Any]) -> list[Any]:
        seen.append({type(content) for content in contents})
        return [[] for _ in contents]

    async def ask() -> None:
        queue = Queue(predict)
        given = [b"x", np.ones((1, 2), np.float32)] * 5
        await asyncio.gather(*(queue.ask(content) for content in given))

    finished(ask())
    assert all(len(kinds) == 1 for kinds in seen)


def test_a_full_queue_says_so_and_the_others_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 3)
    begun, go_on = threading.Event(), threading.Event()

    def predict(contents: list[Any]) -> list[Any]:
        begun.set()
        assert go_on.wait(60)
        return [[content] for content in contents]

    async def ask() -> list[Any]:
        queue = Queue(predict)
        first = asyncio.create_task(queue.ask(b"0"))
        await asyncio.to_thread(begun.wait, 60)
        waiting = [asyncio.create_task(queue.ask(bytes([n]))) for n in (1, 2, 3)]
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await queue.ask(b"4")
        go_on.set()
        return await asyncio.gather(first, *waiting)

    assert len(finished(ask())) == 4


def test_a_failure_is_an_answer_and_the_queue_goes_on() -> None:
    def predict(contents: list[Any]) -> list[Any]:
        if contents[0] == b"bad":
            raise RuntimeError("out of luck")
        return [[content] for content in contents]

    async def ask() -> Any:
        queue = Queue(predict)
        with pytest.raises(GoalError, match="out of luck"):
            await queue.ask(b"bad")
        return await queue.ask(b"good")

    assert finished(ask()) == [b"good"]


def test_a_full_service_answers_503(
    served: tuple[Service, TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy(self: Queue, content: Any) -> Any:
        raise Busy

    monkeypatch.setattr(Queue, "ask", busy)
    answer = served[1].post("/predict", content=b"x")
    assert answer.status_code == 503 and answer.headers["retry-after"] == "1"


def test_a_photograph_of_any_kind_is_taken(served: tuple[Service, TestClient]) -> None:
    for kind, mode in (("JPEG", "CMYK"), ("PNG", "RGBA"), ("GIF", "P"), ("TIFF", "I;16")):
        buffer = io.BytesIO()
        Image.new(mode, (40, 30)).save(buffer, kind)
        answer = served[1].post("/predict", content=buffer.getvalue())
        assert answer.status_code == 200, (kind, answer.text)

"""`goal serve`: a model that answers over HTTP, on this machine, without a page.

Requests wait in a short queue and are looked at together, because a backbone takes a batch in
little more time than one image. A full queue says so at once (503) and nobody waits for ever.
"""

import asyncio
import hashlib
import io
import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from goal import __version__
from goal.common.arrays import IntArray
from goal.common.errors import GoalError
from goal.data.decoding import decode
from goal.data.images import DIGEST_BYTES
from goal.data.own_images import ImageSet
from goal.features.given import feature_set
from goal.models.model import Model
from goal.models.predictions import Predictions
from goal.review.bodies import MOST_JSON, read_body
from goal.review.openapi import document
from goal.review.routes import explained

MOST_IMAGE = 32 << 20
MOST_WAITING = 256
MOST_WAITING_BYTES = 256 << 20
BATCH = 64
MOST_FEATURES = 4096

Answer = dict[str, Any]


class Busy(Exception):
    """The queue is full."""


@dataclass
class _Job:
    """What one request asks: an encoded image, or features (N, D)."""

    content: bytes | npt.NDArray[np.float32]
    answer: "asyncio.Future[list[Answer]]"

    @property
    def size(self) -> int:
        """Bytes that it holds while it waits."""
        return len(self.content) if isinstance(self.content, bytes) else self.content.nbytes


class Queue:
    """Requests in the order in which they came, answered some at a time."""

    def __init__(self, predict: Callable[[list[Any]], list[list[Answer] | GoalError]]) -> None:
        """Answer by `predict`, which takes contents of one kind and never raises a `GoalError`."""
        self._predict = predict
        self._jobs: deque[_Job] = deque()
        self._held = 0
        self._worker: asyncio.Task[None] | None = None
        self.batches = 0

    def __len__(self) -> int:
        return len(self._jobs)

    async def ask(self, content: Any) -> list[Answer]:
        """Wait in the queue and return the answers; `Busy` if there is no room in it."""
        job = _Job(content, asyncio.get_running_loop().create_future())
        full = len(self._jobs) >= MOST_WAITING or self._held + job.size > MOST_WAITING_BYTES
        if full and self._jobs:
            raise Busy
        self._jobs.append(job)
        self._held += job.size
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await job.answer

    async def _work(self) -> None:
        while self._jobs:
            await asyncio.sleep(0)  # let those who came at the same time join
            batch = self._batch()
            self.batches += 1
            try:
                found = await run_in_threadpool(self._predict, [job.content for job in batch])
            except Exception as error:
                found = [GoalError(f"The model could not answer: {error}") for _ in batch]
            for job, answer in zip(batch, found, strict=True):
                if job.answer.cancelled():
                    continue
                if isinstance(answer, GoalError):
                    job.answer.set_exception(answer)
                else:
                    job.answer.set_result(answer)

    def _batch(self) -> list[_Job]:
        """The first job and those of its kind behind it."""
        kind, batch = type(self._jobs[0].content), list[_Job]()
        while self._jobs and len(batch) < BATCH and type(self._jobs[0].content) is kind:
            job = self._jobs.popleft()
            self._held -= job.size
            batch.append(job)
        return batch


class SentImages:
    """Images as they were sent, decoded when they are looked at."""

    def __init__(self, contents: Sequence[bytes]) -> None:
        self._contents = contents
        self.labels: IntArray = np.zeros(len(contents), np.int64)

    def image(self, index: int) -> Image.Image:
        """Decode image `index`."""
        return decode(io.BytesIO(self._contents[index]))

    def digest(self, index: int) -> bytes:
        """Hash of its bytes."""
        return hashlib.sha256(self._contents[index]).digest()[:DIGEST_BYTES]


class Service:
    """What is asked of a model."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.queue = Queue(self.answers)

    def answers(self, contents: list[Any]) -> list[list[Answer] | GoalError]:
        """Predictions of encoded images, or of arrays of features."""
        try:
            if isinstance(contents[0], bytes):
                return self._of_images(contents)
            return self._of_features(contents)
        except GoalError as error:
            return [error for _ in contents]

    def _of_images(self, contents: list[bytes]) -> list[list[Answer] | GoalError]:
        numbers = [str(number) for number in range(len(contents))]
        given = ImageSet(SentImages(contents), numbers, list(range(len(contents))), [])
        found = self._model.predict(given)
        reasons = dict(found.skipped)
        rows = dict(zip(found.names, _rows(found), strict=True))
        return [
            [rows[number]]
            if number in rows
            else GoalError(f"This is no image that can be read: {reasons.get(number, 'damaged')}.")
            for number in numbers
        ]

    def _of_features(self, parts: list[npt.NDArray[np.float32]]) -> list[list[Answer] | GoalError]:
        origin = self._model.records[0].origin
        if origin is None:
            raise GoalError("This model takes images: its method needs more than a feature.")
        wrong = [part.shape[1] for part in parts if part.shape[1] != origin.width]
        if wrong:
            expected = f"expected are {origin.width} ({origin.backbone})."
            return [
                GoalError(f"A feature has {part.shape[1]} numbers; {expected}")
                if part.shape[1] != origin.width
                else self._of_features([part])[0]
                for part in parts
            ]
        given = feature_set(np.concatenate(parts), origin=origin)
        rows = _rows(self._model.predict(given.images))
        starts = np.cumsum([0, *(len(part) for part in parts)]).tolist()
        return [rows[start:end] for start, end in pairwise(starts)]

    def classes(self) -> list[Answer]:
        """The classes of the model."""
        return [
            {"id": known.id, "name": known.name, "stage": known.stage, "images": known.size}
            for known in self._model.roster.classes()
        ]

    def health(self) -> Answer:
        """Whether it can answer, and how many wait."""
        latest = self._model.records[-1]
        return {"status": "ok", "stage": latest.index, "waiting": len(self.queue)}

    def warm(self) -> None:
        """Load the model and its backbone before the first request."""
        picture = io.BytesIO()
        Image.new("RGB", (64, 64)).save(picture, "PNG")
        self.answers([picture.getvalue()])


def _rows(found: Predictions) -> list[Answer]:
    """Predictions one by one, without their names."""
    columns = {key: column for key, column in found.columns().items() if key != "file"}
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def features_of(content: bytes) -> npt.NDArray[np.float32]:
    """Features (N, D) of a request's JSON, or an error that says what was expected."""
    expected = 'Expected {"features": [[number, ...], ...]}, all of one length.'
    try:
        given = json.loads(content)
        found = np.asarray(given["features"], dtype=np.float32)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        raise GoalError(f"{expected} {error}") from error
    if found.ndim != 2 or not found.size or not np.isfinite(found).all():
        raise GoalError(f"{expected} Given: an array of shape {found.shape}.")
    if len(found) > MOST_FEATURES:
        raise GoalError(f"At most {MOST_FEATURES:,} features at a time; given: {len(found):,}.")
    return found


def application(service: Service) -> Starlette:
    """The addresses of `goal serve`."""

    async def predict(request: Request) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0]
        content: Any
        if kind == "application/json":
            content = features_of(await read_body(request, MOST_JSON))
        else:
            content = await read_body(request, MOST_IMAGE)
        try:
            return JSONResponse({"predictions": await service.queue.ask(content)})
        except Busy:
            busy = {"error": "Too many requests are waiting. Ask again in a moment."}
            return JSONResponse(busy, 503, headers={"retry-after": "1"})

    async def classes(request: Request) -> Response:
        return JSONResponse({"classes": await run_in_threadpool(service.classes)})

    async def health(request: Request) -> Response:
        try:
            return JSONResponse(await run_in_threadpool(service.health))
        except GoalError as error:
            return JSONResponse({"status": "down", "error": str(error)}, 503)

    async def described(request: Request) -> Response:
        return JSONResponse(document(__version__))

    return Starlette(
        routes=[
            Route("/predict", explained(predict), methods=["POST"]),
            Route("/classes", explained(classes), methods=["GET"]),
            Route("/health", health, methods=["GET"]),
            Route("/openapi.json", described, methods=["GET"]),
        ]
    )

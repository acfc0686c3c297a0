"""A receiver of OTLP over HTTP, as a collector is one: what came, decoded."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple, Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

if TYPE_CHECKING:
    from email.message import Message
    from types import TracebackType

    from opentelemetry.proto.metrics.v1 import metrics_pb2 as otlp


class Export(NamedTuple):
    """One request."""

    path: str
    headers: Message
    request: ExportMetricsServiceRequest
    sent_bytes: int
    """The size of its body, compressed as it came."""
    unpacked_bytes: int

    @property
    def resource(self) -> dict[str, str]:
        """What the server says of itself."""
        attributes = self.request.resource_metrics[0].resource.attributes
        return {one.key: one.value.string_value for one in attributes}

    @property
    def metrics(self) -> dict[str, otlp.Metric]:
        """Every metric by name. None may come twice."""
        listed = self.request.resource_metrics[0].scope_metrics[0].metrics
        by_name = {one.name: one for one in listed}
        assert len(listed) == len(by_name)
        return by_name


class Receiver:
    """Listens on a free port. What it answers can be changed while it runs."""

    def __init__(self) -> None:
        self.exports: SimpleQueue[Export] = SimpleQueue()
        self.status = 200
        self.location = ""
        self.answer = ExportMetricsServiceResponse().SerializeToString()
        self.may_answer = threading.Event()
        self.may_answer.set()

    def __enter__(self) -> Self:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                sent = self.rfile.read(int(self.headers["Content-Length"]))
                body = gzip.decompress(sent)
                request = ExportMetricsServiceRequest.FromString(body)
                receiver.exports.put(Export(self.path, self.headers, request, len(sent), len(body)))
                receiver.may_answer.wait()
                self.send_response(receiver.status)
                self.send_header("Content-Length", str(len(receiver.answer)))
                if receiver.location:
                    self.send_header("Location", receiver.location)
                self.end_headers()
                self.wfile.write(receiver.answer)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening. Nothing when it has stopped."""
        self.may_answer.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def endpoint(self) -> str:
        """What `kgw.otel.endpoint` is set to."""
        return f"http://127.0.0.1:{self._server.server_port}"

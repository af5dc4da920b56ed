"""A proxy between a client and its server that cuts connections, before or after the server has got a message."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from threading import Event, Thread
from types import TracebackType

PIECE_BYTES = 65_536
END_S_MAX = 10.0


class Cut(Enum):
    """When a connection is cut."""

    BEFORE = "before the server gets the message"
    AFTER = "after the server has answered the message, before the client gets the answer"


class CuttingProxy:
    """Passes bytes on between clients and a server. Used as a context.

    Attributes:
      choose: is given each message of a client; returns how it is cut, or None.
      cuts: how many connections were cut.
    """

    def __init__(self, server_port: int) -> None:
        self.choose: Callable[[bytes], Cut | None] = lambda message: None
        self.cuts = 0
        self._server_port = server_port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads = [Thread(target=self._accept)]

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self._listening.getsockname()[1]
        return port

    def __enter__(self) -> CuttingProxy:
        self._threads[0].start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for each in self._sockets:
            _end(each)
        for thread in self._threads:
            thread.join(END_S_MAX)
        for each in self._sockets:
            each.close()

    def cut_next(self, text: bytes, cut: Cut) -> None:
        """Cut the connection of the next message that contains a text."""

        def choose(message: bytes) -> Cut | None:
            if text not in message:
                return None
            self.choose = lambda message: None
            return cut

        self.choose = choose

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._server_port))
            self._sockets += [client, server]
            thread = Thread(target=self._pass_on, args=(client, server))
            self._threads.append(thread)
            thread.start()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        muted = Event()
        answering = Thread(target=_pass_answers_on, args=(server, client, muted))
        answering.start()
        with suppress(OSError):
            while message := client.recv(PIECE_BYTES):
                cut = self.choose(message)
                self.cuts += cut is not None
                if cut is Cut.BEFORE:
                    break
                if cut is Cut.AFTER:
                    muted.set()
                server.sendall(message)
                if cut is Cut.AFTER:
                    server.shutdown(socket.SHUT_WR)  # It answers what it has got, and closes.
                    answering.join(END_S_MAX)
                    break
        _end(client)
        _end(server)
        answering.join(END_S_MAX)


def _pass_answers_on(server: socket.socket, client: socket.socket, muted: Event) -> None:
    with suppress(OSError):
        while answer := server.recv(PIECE_BYTES):
            if not muted.is_set():
                client.sendall(answer)
    if not muted.is_set():
        _end(client)


def _end(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)

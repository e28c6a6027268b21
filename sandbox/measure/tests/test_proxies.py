import socket
import threading
import time

from measure.proxies import Delay


def echo() -> int:
    server = socket.create_server(("127.0.0.1", 0))

    def answer(connection: socket.socket) -> None:
        with connection:
            while piece := connection.recv(65536):
                connection.sendall(piece)

    def work() -> None:
        while True:
            threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()

    threading.Thread(target=work, daemon=True).start()
    return int(server.getsockname()[1])


def free() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_the_delay_is_added_to_each_round_trip_and_bytes_stay_in_order() -> None:
    port = free()
    proxy = Delay(("127.0.0.1", port), ("127.0.0.1", echo()), 0.05)
    with socket.create_connection(("127.0.0.1", port)) as client:
        for number in range(3):
            began = time.monotonic()
            client.sendall(b"%d" % number)
            assert client.recv(10) == b"%d" % number
            assert 0.05 <= time.monotonic() - began < 0.3
        proxy.seconds = 0
        began, data = time.monotonic(), bytes(range(256)) * 4000
        threading.Thread(target=client.sendall, args=(data,), daemon=True).start()
        got = b""
        while len(got) < len(data):
            got += client.recv(65536)
        assert got == data and time.monotonic() - began < 2

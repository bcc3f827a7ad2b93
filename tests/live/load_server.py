"""A small server that behaves as its paths say; run as a program, it prints its address."""

import asyncio
import json
import sys
import time

BODY = b'{"input": [1, 2]}'
STALL_S = 0.5
STALL_AT = 40  # the request that finds the server stuck


def answer(status: int, body: object = None, *, closes: bool = False) -> bytes:
    data = json.dumps(body).encode()
    end = "Connection: close\r\n" if closes else ""
    return f"HTTP/1.1 {status} Said\r\nContent-Length: {len(data)}\r\n{end}\r\n".encode() + data


class Connection(asyncio.Protocol):
    requests = 0

    def connection_made(self, transport):
        self.transport, self.data = transport, b""

    def data_received(self, data):
        self.data += data
        head, found, rest = self.data.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        if found and len(rest) >= int(headers.get("content-length", 0)):
            self.data = b""
            self.serve(lines[0].split()[1], headers, rest)

    def serve(self, path, headers, body):
        write = self.transport.write
        if path == "/ok":
            write(answer(200))
        elif path == "/echo":
            is_same = body == BODY and headers.get("authorization") == "Bearer abc"
            write(answer(200 if is_same else 400))
        elif path == "/deadline":
            write(answer(200 if 0 < float(headers.get("x-deadline-ms", 0)) <= 20_000 else 400))
        elif path == "/slow":
            asyncio.get_running_loop().call_later(0.05, write, answer(200))
        elif path == "/busy":
            write(answer(429, {"error": {"code": "refused", "message": "No.", "reason": "too much is ahead"}}))
        elif path == "/plain-busy":
            write(answer(503, "come back"))
        elif path == "/broken":
            write(answer(500, {"error": "no"}))
        elif path == "/once":
            write(answer(200, closes=True))
            self.transport.close()
        elif path == "/drop":
            self.transport.abort()
        elif path == "/garbage":
            write(b"good morning\r\n\r\n")
        elif path == "/stall":
            Connection.requests += 1
            if Connection.requests == STALL_AT:
                time.sleep(STALL_S)  # everybody waits
            write(answer(200))
        else:
            assert path == "/hang"


async def main():
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0, backlog=512)
    sys.stdout.write(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())

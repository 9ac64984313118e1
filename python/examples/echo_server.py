"""Sends back what comes. Usage: echo_server.py ADDRESS PORT [CLIENTS]"""

import asyncio
import sys

import sidecore


async def serve(stream: sidecore.aio.Stream) -> None:
    async with stream:
        while piece := await stream.recv(65536):
            await stream.sendall(piece)


async def main(host: str, port: int, clients: int) -> None:
    tasks = []
    async with await sidecore.aio.listen((host, port)) as listener:
        print("listening on port", (await listener.getsockname())[1], flush=True)
        while clients == 0 or len(tasks) < clients:
            stream, _ = await listener.accept()
            tasks.append(asyncio.create_task(serve(stream)))
            if clients == 0:
                tasks = [task for task in tasks if not task.done()]
    await asyncio.gather(*tasks)
    await sidecore.default_link().flushed()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0))

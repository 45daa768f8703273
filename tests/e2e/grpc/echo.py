"""A gRPC server that answers with its name, and a client that finds such servers by xDS.

    echo.py serve NAME       prints `listening on PORT` on the standard error
    echo.py call TARGET      calls again and again, and prints the name that answered, or `failed: ...`

The client is gRPC's own: where to ask and who it is, it reads from the file that GRPC_XDS_BOOTSTRAP names.
"""

import sys
import time
from concurrent import futures

import grpc

METHOD = "/echo.Echo/Name"
PATIENCE = 20  # seconds, far beyond what a call takes
PAUSE = 0.01


class Echo(grpc.GenericRpcHandler):
    """Answers any request to the one method with a name, in bytes and without a schema."""

    def __init__(self, name):
        self.name = name.encode()

    def service(self, details):
        if details.method != METHOD:
            return None
        return grpc.unary_unary_rpc_method_handler(lambda request, context: self.name)


def serve(name):
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=2), handlers=[Echo(name)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"listening on {port}", file=sys.stderr, flush=True)
    server.wait_for_termination()


def call(target):
    with grpc.insecure_channel(target) as channel:
        name = channel.unary_unary(METHOD)
        while True:
            try:
                print(name(b"", timeout=PATIENCE, wait_for_ready=True).decode(), flush=True)
            except grpc.RpcError as error:
                print(f"failed: {error.code().name}: {error.details()}", flush=True)
            time.sleep(PAUSE)


if __name__ == "__main__":
    {"serve": serve, "call": call}[sys.argv[1]](sys.argv[2])

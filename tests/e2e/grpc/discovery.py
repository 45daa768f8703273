"""A client of policy discovery on gRPC's own Python library, without generated code.

    discovery.py SERVER OPTIONS

OPTIONS is a JSON object: `address`, `identity` (`service`, `mesh`, `tags`) if it says who it is, `plan` if it asks for that,
and `refuse`, a word: policies with this word in them are refused. Every response, and every end of a stream, is a line of
JSON on the standard output. After an end it connects again with the version and nonce that it has.
"""

import hashlib
import json
import queue
import sys
import time

import grpc

SERVICE = "/postern.discovery.v1.PolicyDiscovery/"
PAUSE = 0.05


def varint(number):
    encoded = b""
    while number > 0x7F:
        encoded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return encoded + bytes([number])


def field(number, value):
    """A text, bytes or truth value of a message; nothing if it is empty."""
    if value is True:
        return varint(number << 3) + b"\1"
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value if value else b""


def fields(message):
    """The length-delimited fields of a message, in order: nothing else is in those that are read here, but truth values."""
    place = 0

    def read():
        nonlocal place
        number = shift = 0
        while True:
            byte = message[place]
            place += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    while place < len(message):
        tag = read()
        length = read()
        if tag & 7 == 0:
            yield tag >> 3, length
            continue
        yield tag >> 3, message[place : place + length]
        place += length


def identity(who):
    tags = (field(3, field(1, name) + field(2, value)) for name, value in who.get("tags", {}).items())
    return field(1, who.get("service", "")) + field(2, who.get("mesh", "")) + b"".join(tags)


def request(options, version, nonce, error=None, first=False):
    message = field(1, options["address"]) + field(2, version) + field(3, nonce)
    if error:
        message += field(4, b"\x08\x03" + field(2, error))
    if first and "identity" in options:
        who = identity(options["identity"])
        # A message that is empty is there all the same.
        message += varint(5 << 3 | 2) + varint(len(who)) + who
    return message + (field(6, True) if first and options.get("plan") else b"")


def read(response):
    version, nonce, plan, policies, digest = "", "", b"", [], hashlib.sha256()
    for number, value in fields(response):
        if number == 1:
            version = value.decode()
        elif number == 2:
            policy = dict(fields(value))
            policies.append({name: policy.get(at, b"").decode() for at, name in enumerate(("name", "kind", "spec"), 1)})
            digest.update(policy[1] + value)
        elif number == 3:
            nonce = value.decode()
        elif number == 4:
            plan = value
    if plan:
        digest.update(hashlib.sha256(plan).digest())
    proved = digest.hexdigest() == version
    return {"version": version, "nonce": nonce, "policies": policies, "plan": len(plan), "proved": proved}


def health(channel, options):
    answer = dict(fields(channel.unary_unary(SERVICE + "HealthCheck")(field(1, options["address"]))))
    return {"connected": bool(answer.get(1)), "due": answer.get(2, b"").decode()}


def follow(channel, options, state):
    """One stream, to its end."""
    requests = queue.SimpleQueue()
    requests.put(request(options, state["version"], state["nonce"], first=True))
    for response in channel.stream_stream(SERVICE + "StreamPolicies")(iter(requests.get, None), wait_for_ready=True):
        got = read(response)
        state["nonce"] = got["nonce"]
        word = options.get("refuse")
        refused = word and any(word in policy["spec"] for policy in got["policies"])
        if not refused:
            state["version"] = got["version"]
        requests.put(request(options, state["version"], state["nonce"], f"`{word}` is not known" if refused else None))
        print(json.dumps({**got, "refused": bool(refused), "health": health(channel, options)}), flush=True)


def main(server, options):
    options, state = json.loads(options), {"version": "", "nonce": ""}
    with grpc.insecure_channel(server, options=[("grpc.max_reconnect_backoff_ms", 200)]) as channel:
        while True:
            try:
                follow(channel, options, state)
            except grpc.RpcError as error:
                print(json.dumps({"ended": error.code().name, "details": error.details()}), flush=True)
            time.sleep(PAUSE)


if __name__ == "__main__":
    main(*sys.argv[1:])

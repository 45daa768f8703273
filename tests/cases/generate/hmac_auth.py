#!/usr/bin/env python3
"""Writes tests/cases/hmac-auth.yaml: requests signed as RFC 9421 says, by Python's hmac and hashlib.

Every signature that is meant to be good is made a second time by the package `http-message-signatures`, and must be the same
(pip install http-message-signatures). Run it from anywhere; the file is written beside it.
"""

import base64
import datetime
import hashlib
import hmac
import json
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

from http_message_signatures import HTTPMessageSigner, HTTPSignatureKeyResolver, algorithms

FILE = Path(__file__).resolve().parent.parent / "hmac-auth.yaml"
ALICE = "alice's secret of more than 16 bytes"
BOB = base64.b64encode(bytes(range(64))).decode()
SECRETS = {"alice-1": ALICE.encode(), "bob/1": bytes(range(64))}
RESOURCES = [
    {"apiVersion": "postern/v1", "kind": "Consumer", "metadata": {"name": "hmac-alice"}, "spec": {"hmac": [{"keyId": "alice-1", "secret": ALICE}], "groups": ["signers"]}},
    {"apiVersion": "postern/v1", "kind": "Consumer", "metadata": {"name": "hmac-bob"}, "spec": {"hmac": [{"keyId": "bob/1", "secretBase64": BOB}]}},
]
CREATED = 1618884473
DEFAULT = ["@method", "@authority", "@path", "@query"]


class Keys(HTTPSignatureKeyResolver):
    def resolve_private_key(self, key_id):
        return SECRETS[key_id]


class Headers(dict):
    def get(self, name, default=None):
        return super().get(name.lower(), default)

    def __getitem__(self, name):
        return super().__getitem__(name.lower())

    def __setitem__(self, name, value):
        super().__setitem__(name.lower(), value)

    def __contains__(self, name):
        return super().__contains__(name.lower())


def value(component, request, host):
    path, _, query = request["path"].partition("?")
    match component:
        case "@method": return request["method"]
        case "@authority": return host
        case "@scheme": return "http"
        case "@target-uri": return f"http://{host}{request['path']}"
        case "@request-target": return request["path"]
        case "@path": return path
        case "@query": return "?" + query
    values = [text.strip() for name, text in request["headers"] if name.lower() == component]
    return ", ".join(values)


def by_library(request, host, components, label, created, expires, nonce, key):
    message = SimpleNamespace(method=request["method"], url=f"http://{host}{request['path']}", headers=Headers())
    for name, text in request["headers"]:
        message.headers[name] = text
    signer = HTTPMessageSigner(signature_algorithm=algorithms.HMAC_SHA256, key_resolver=Keys())
    when = lambda seconds: datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc) if seconds else None
    signer.sign(message, key_id=key, created=when(created), expires=when(expires), nonce=nonce, label=label, include_alg=False,
                covered_component_ids=components)
    return message.headers["Signature-Input"], message.headers["Signature"]


COMPARED = 0


def sign(request, host, components=DEFAULT, label="sig1", created=None, expires=None, nonce=None, alg=None, key="alice-1", secret=None,
         order=("created", "expires", "nonce", "alg", "keyid"), extra=""):
    global COMPARED
    parameters = {"created": created, "expires": expires, "nonce": nonce and json.dumps(nonce), "alg": alg and json.dumps(alg), "keyid": key and json.dumps(key)}
    listed = "(" + " ".join(json.dumps(component) for component in components) + ")"
    listed += "".join(f";{name}={parameters[name]}" for name in order if parameters[name] is not None) + extra
    base = "".join(f"{json.dumps(component)}: {value(component, request, host)}\n" for component in components)
    base += f'"@signature-params": {listed}'
    code = hmac.new(secret or SECRETS.get(key, b"?" * 20), base.encode(), hashlib.sha256).digest()
    made = f"{label}={listed}", f"{label}=:{base64.b64encode(code).decode()}:"
    if created and secret is None and key in SECRETS and alg is None and not extra and order[0] == "created":
        theirs_input, theirs = by_library(request, host, components, label, created, expires, nonce, key)
        # The order of parameters is the signer's own choice; the code must be ours over their order.
        names = [part.split("=")[0] for part in theirs_input.split(")", 1)[1].split(";")[1:]]
        again = "(" + " ".join(json.dumps(component) for component in components) + ")" + "".join(f";{name}={parameters[name]}" for name in names)
        assert theirs_input == f"{label}={again}", (theirs_input, again)
        base = "".join(f"{json.dumps(component)}: {value(component, request, host)}\n" for component in components) + f'"@signature-params": {again}'
        code = hmac.new(SECRETS[key], base.encode(), hashlib.sha256).digest()
        assert theirs == f"{label}=:{base64.b64encode(code).decode()}:", components
        COMPARED += 1
        made = theirs_input, theirs
    return made


def digest(body, algorithm="sha-256"):
    code = {"sha-256": hashlib.sha256, "sha-512": hashlib.sha512}[algorithm](body).digest()
    return f"{algorithm}=:{base64.b64encode(code).decode()}:"


CASES = []


def case(note, params=None, method="GET", path="/a/b?x=1&y=%20z", headers=(), body=None, want=None, tamper=None, now=None, sequence=None, signs=True,
         chain=None, shadow=False, **signing):
    host = f"hmac-auth-{len(CASES)}.test"
    request = {"method": method, "path": path, "headers": [list(pair) for pair in headers]}
    if body is not None:
        request["body"] = body
    if signs:
        made = sign(request, host, **signing)
        request["headers"] += [["signature-input", made[0]], ["signature", made[1]]]
    if tamper:
        tamper(request)
    if now:
        request["at"] = now
    step = {"policy": "hmacAuth", "params": {"requireDate": False, **(params or {})}}
    if shadow:
        step["mode"] = "shadow"
    made = {"note": note, "chain": chain or {"request": [step]}}
    if sequence:
        made["sequence"] = [{"request": {**request, **({"at": at} if at else {})}, "want": expected} for at, expected in sequence]
    else:
        made["request"] = request
        made["want"] = want or ALLOW
    if now or sequence and any(at for at, _ in sequence):
        made["except"] = {"envoy": "its clock cannot be set"}
    CASES.append(made)


ALLOW = {"verdict": "allow", "status": 200, "consumer": "hmac-alice"}
BODY = '{"title":"Unauthorized","status":401,"detail":"a valid signature is required"}'


def deny(reason):
    return {"verdict": "deny", "status": 401, "step": "hmacAuth", "reason": reason, "headers": {"www-authenticate": "Signature", "content-type": "application/problem+json"}, "body": BODY}


def header(name, text):
    """Replaces a header after signing."""
    def act(request):
        request["headers"] = [[other, text if other == name else old] for other, old in request["headers"]]
    return act


def edit(name, change):
    def act(request):
        request["headers"] = [[other, change(old) if other == name else old] for other, old in request["headers"]]
    return act


def drop(name):
    def act(request):
        request["headers"] = [pair for pair in request["headers"] if pair[0] != name]
    return act


def append(*pairs):
    def act(request):
        request["headers"] += [list(pair) for pair in pairs]
    return act


def change(**fields):
    def act(request):
        request.update(fields)
    return act


def write():
    wrong, malformed, missing = deny("signature_wrong"), deny("signature_malformed"), deny("signature_missing")
    case("admits a signed request")
    case("admits another consumer's key", key="bob/1", want={**ALLOW, "consumer": "hmac-bob"})
    case("denies a request without a signature", signs=False, want=missing)
    case("denies a signature without its input", tamper=drop("signature-input"), want=missing)
    case("denies an input without its signature", tamper=drop("signature"), want=missing)
    case("denies an empty signature", tamper=header("signature", ""), want=missing)
    # What is covered cannot be changed.
    case("denies another method", tamper=change(method="DELETE"), want=wrong)
    case("denies another path", tamper=change(path="/a/c?x=1&y=%20z"), want=wrong)
    case("denies another query", tamper=change(path="/a/b?x=2&y=%20z"), want=wrong)
    case("denies a query in another writing", tamper=change(path="/a/b?x=1&y=+z"), want=wrong)
    case("denies a signature for another host", tamper=edit("signature", lambda _: sign({"method": "GET", "path": "/a/b?x=1&y=%20z", "headers": []}, "other.test")[1]), want=wrong)
    case("denies a key of another consumer", tamper=edit("signature-input", lambda text: text.replace("alice-1", "bob/1")), want=wrong)
    case("denies another secret", secret=b"a guess of more than 16 bytes", want=wrong)
    case("denies an unknown key", key="nobody", want=deny("key_unknown"))
    case("denies a signature without a key", key=None, secret=SECRETS["alice-1"], want=deny("key_unknown"))
    case("denies a name of a key in another case", key="ALICE-1", secret=SECRETS["alice-1"], want=deny("key_unknown"))
    case("denies the digest of the secret in place of the secret", secret=hashlib.sha256(ALICE.encode()).digest(), want=wrong)
    case("denies a signature with a byte less", tamper=edit("signature", lambda text: f"sig1=:{base64.b64encode(base64.b64decode(text[6:-1])[:-1]).decode()}:"), want=wrong)
    case("denies an empty code", tamper=header("signature", "sig1=::"), want=wrong)
    # Components.
    case("admits a query that is empty", path="/a")
    case("admits a signature over the whole target", components=["@method", "@target-uri"])
    case("admits a signature over the request target", components=["@method", "@request-target", "@authority"])
    case("admits a scheme", components=["@scheme", *DEFAULT])
    case("denies a signature that covers less than asked for", components=["@method", "@path"], want=deny("component_missing"))
    case("denies a signature over nothing", components=[], want=deny("component_missing"))
    case("asks for the components that it is told to", {"components": ["@method", "X-Tenant"]}, headers=[["x-tenant", "a"]], components=["@method", "x-tenant"])
    case("denies without a component that it is told to ask for", {"components": ["@method", "x-tenant"]}, headers=[["x-tenant", "a"]], components=["@method"], want=deny("component_missing"))
    case("denies a header that was changed", components=[*DEFAULT, "x-tenant"], headers=[["x-tenant", "a"]], tamper=header("x-tenant", "b"), want=wrong)
    case("denies a header that was added to", components=[*DEFAULT, "x-tenant"], headers=[["x-tenant", "a"]], tamper=append(("x-tenant", "b")), want=wrong)
    case("denies a covered header that is absent", components=[*DEFAULT, "x-tenant"], want=deny("component_missing"))
    case("joins a header that is there twice", components=[*DEFAULT, "x-tenant"], headers=[["x-tenant", "a"], ["x-tenant", "b"]])
    case("takes an empty header", components=[*DEFAULT, "x-tenant"], headers=[["x-tenant", ""]])
    case("lets an uncovered header pass", headers=[["x-other", "a"]], tamper=header("x-other", "b"))
    case("denies a component that it does not understand", components=[*DEFAULT, "@status"], want=deny("component_unsupported"))
    case("denies a pseudo-header as a component", components=[*DEFAULT, ":path"], want=deny("component_unsupported"))
    case("denies a component in upper case", components=[*DEFAULT, "X-Tenant"], headers=[["x-tenant", "a"]], want=deny("component_unsupported"))
    case("denies a component with parameters", tamper=edit("signature-input", lambda text: text.replace('"@query"', '"@query" "x-a";bs')), want=deny("component_unsupported"))
    case("denies a component that is there twice", components=[*DEFAULT, "@path"], want=malformed)
    case("sees what earlier steps changed", components=[*DEFAULT, "x-tenant"], headers=[["x-tenant", "a"]], want={**wrong, "body": BODY},
         chain={"request": [{"policy": "headers", "params": {"set": {"x-tenant": "b"}}}, {"policy": "hmacAuth", "params": {"requireDate": False}}]})
    # Structured fields.
    for note, text in [("a label without a value", "sig1"), ("an item in place of a list", 'sig1="x";keyid="alice-1"'), ("a list that does not end", 'sig1=("@method"'),
                       ("a token in the list", "sig1=(method)"), ("a trailing comma", 'sig1=("@method"),'), ("a label in upper case", 'SIG1=("@method")'),
                       ("a number as a key", 'sig1=("@method");keyid=5'), ("a string as a time", 'sig1=("@method");created="5"'), ("a fraction as a time", 'sig1=("@method");created=1.5'),
                       ("bytes that are no text", {"hex": "73696731ff"})]:
        case(f"denies {note}", tamper=header("signature-input", text), want=malformed)
    for note, text in [("a code that is no bytes", 'sig1="x"'), ("a code that is not base64", "sig1=:!:"), ("a code without its padding", "sig1=:YWI:")]:
        case(f"denies {note}", tamper=header("signature", text), want=malformed)
    case("denies headers that are very long", tamper=edit("signature-input", lambda text: text + ";x=" + json.dumps("y" * 9000)), want=malformed)
    case("takes an input with spaces, and checks it as it is written properly", tamper=edit("signature-input", lambda text: text.replace('" "', '"   "').replace(";", ";  ")))
    case("takes parameters that it does not know", extra=';tag="app";x;y=?0;z=tok')
    case("denies a parameter that was added", tamper=edit("signature-input", lambda text: text + ";x"), want=wrong)
    case("takes parameters in any order", order=("keyid", "alg", "nonce"), nonce="n", alg="hmac-sha256")
    case("takes the algorithm that it knows", alg="hmac-sha256")
    case("denies another algorithm", alg="ed25519", want=deny("algorithm_unsupported"))
    case("denies no algorithm", alg="none", want=deny("algorithm_unsupported"))
    # Several signatures.
    second = append(("signature-input", 'other=("@method");keyid="x"'), ("signature", "other=:AAAA:"))
    case("denies two signatures without a label", tamper=second, want=deny("signature_ambiguous"))
    case("finds the signature of its label", {"label": "mine"}, label="mine", tamper=second)
    case("denies a request without a signature of its label", {"label": "mine"}, want=missing)
    case("denies a label whose code is another's", {"label": "mine"}, label="mine", tamper=edit("signature", lambda text: text.replace("mine", "other")), want=missing)
    # Bodies.
    text = '{"amount":1}'
    covered = [*DEFAULT, "content-digest"]
    case("admits a body whose digest is covered", method="POST", body=text, headers=[["content-digest", digest(text.encode())]], components=covered)
    case("admits a longer digest", method="POST", body=text, headers=[["content-digest", digest(text.encode(), "sha-512")]], components=covered)
    case("admits two digests that are right", method="POST", body=text, headers=[["content-digest", digest(text.encode()) + ", " + digest(text.encode(), "sha-512")]], components=covered)
    case("denies a body that was changed", method="POST", body=text, headers=[["content-digest", digest(text.encode())]], components=covered, tamper=change(body='{"amount":9}'), want=deny("digest_wrong"))
    case("denies a digest that was changed with its body", method="POST", body=text, headers=[["content-digest", digest(text.encode())]], components=covered,
         tamper=lambda request: (change(body="x")(request), header("content-digest", digest(b"x"))(request)), want=wrong)
    case("denies two digests of which one is wrong", method="POST", body=text, headers=[["content-digest", digest(text.encode()) + ", " + digest(b"x", "sha-512")]], components=covered, want=deny("digest_wrong"))
    case("denies a digest of an algorithm that it does not know", method="POST", body=text, headers=[["content-digest", "md5=:AAAA:"]], components=covered, want=deny("digest_wrong"))
    case("denies a digest that is no field", method="POST", body=text, headers=[["content-digest", "sha-256=x"]], components=covered, want=deny("digest_wrong"))
    case("denies a body that is not covered", method="POST", body=text, headers=[["content-digest", digest(text.encode())]], want=deny("digest_missing"))
    case("denies a body without a digest", method="POST", body=text, want=deny("digest_missing"))
    case("admits an empty body without a digest", method="POST", body="")
    case("admits the digest of nothing", headers=[["content-digest", digest(b"")]], components=covered)
    case("admits a body that comes during a delay", method="POST", body=text, headers=[["content-digest", digest(text.encode())]], components=covered,
         chain={"request": [{"policy": "faultInjection", "params": {"delay": {"duration": "20ms"}}}, {"policy": "hmacAuth", "params": {"requireDate": False}}]})
    case("looks at no body if it is told so", {"requireDigest": False}, method="POST", body=text)
    case("denies a body that is too large once its signature is known to be good", method="POST", body=text, headers=[["content-digest", digest(text.encode())]], components=covered,
         chain={"maxBodySize": 5, "request": [{"policy": "hmacAuth", "params": {"requireDate": False}}]}, want={"verdict": "deny", "status": 413, "step": "hmacAuth", "reason": "body_too_large"})
    # Replays.
    replayed = deny("signature_replayed")
    case("admits a signature once", sequence=[(None, ALLOW), (None, replayed), (None, replayed)])
    case("admits a signature again where told", {"refuseReplays": False}, sequence=[(None, ALLOW), (None, ALLOW)])
    case("remembers a signature for the longest window of its plan, which is 1h", {"window": "10s"},
         sequence=[(CREATED, ALLOW), (CREATED + 10, replayed), (CREATED + 12, replayed), (CREATED + 3600, replayed), (CREATED + 3602, ALLOW)])
    # Time.
    dated = {"requireDate": True}
    expired = deny("signature_expired")
    case("admits a fresh signature, with a nonce", dated, created=CREATED, nonce="n-1", now=CREATED + 1)
    case("admits a signature at the end of the window", dated, created=CREATED, now=CREATED + 300)
    case("denies a signature after the window", dated, created=CREATED, now=CREATED + 301, want=expired)
    case("has the window that it is told to have", {**dated, "window": "1h"}, created=CREATED, now=CREATED + 3600)
    case("admits a clock that is a little ahead", dated, created=CREATED, now=CREATED - 30)
    case("denies a clock that is far ahead", dated, created=CREATED, now=CREATED - 31, want=deny("signature_early"))
    case("has the skew that it is told to have", {**dated, "clockSkew": "5s"}, created=CREATED, now=CREATED - 6, want=deny("signature_early"))
    case("denies a signature from its end on", dated, created=CREATED, expires=CREATED + 10, now=CREATED + 10, want=expired)
    case("admits a signature before its end", dated, created=CREATED, expires=CREATED + 10, now=CREATED + 9)
    case("denies a signature without a time", dated, want=deny("date_missing"))
    case("denies a signature of the last century", dated, created=1, want=expired)
    case("denies a signature of a far future", dated, created=99999999999, want=deny("signature_early"))
    case("denies a time before 1970", dated, created=-5, secret=SECRETS["alice-1"], want=expired)
    when = [["date", "Tue, 20 Apr 2021 02:07:55 GMT"]]
    with_date = ["date", *DEFAULT]
    case("takes a covered date for the time", dated, headers=when, components=with_date, now=CREATED + 2)
    case("denies an old date", dated, headers=when, components=with_date, want=expired)
    case("denies a date that is none", dated, headers=[["date", "yesterday"]], components=with_date, want=malformed)
    case("takes no date that is not covered", dated, headers=when, want=deny("date_missing"))
    case("checks time even where none is needed", created=CREATED, want=expired)
    case("reports in shadow mode only", signs=False, shadow=True, want={"verdict": "allow", "status": 200, "notes": ["shadow=hmacAuth:signature_missing"]})
    case("lets later steps know the caller", want=ALLOW, chain={"request": [{"policy": "hmacAuth", "params": {"requireDate": False}}, {"policy": "roleCheck", "params": {"groups": ["signers"]}}]})
    case("admits a signature once where the rate is declared", {"replayRate": 5}, sequence=[(None, ALLOW), (None, replayed)])
    again = {"policy": "hmacAuth", "name": "again", "params": {"requireDate": False}}
    first = {"policy": "hmacAuth", "params": {"requireDate": False}}
    case("does not take a request for its own replay", chain={"request": [first, again]}, sequence=[(None, ALLOW), (None, replayed)])
    case("does not take a request for its own replay after a step in shadow mode", chain={"request": [{**first, "mode": "shadow"}, again]},
         sequence=[(None, ALLOW), (None, {**replayed, "step": "again", "notes": ["shadow=hmacAuth:signature_replayed"]})])
    refusals = [
        ("more signatures than are remembered", {"replayRate": 1000}, "spec.request[0].params.replayRate: 1000 signatures a second for 331s are more than the 262144 that are remembered"),
        ("no rate", {"replayRate": 0}, "spec.request[0].params.replayRate"),
        ("a component that is not understood", {"components": ["@status"]}, "spec.request[0].params.components[0]: expected a header or one of `@method`"),
        ("a component that is no name", {"components": ["a b"]}, "expected a header or one of"),
        ("no component", {"components": []}, "expected at least 1 item"),
        ("a label that is none", {"label": "Sig 1"}, "spec.request[0].params.label: expected a label such as `sig1`"),
        ("a window of no time", {"window": "0s"}, "spec.request[0].params.window"),
        ("a skew that is none", {"clockSkew": "5"}, "spec.request[0].params.clockSkew"),
        ("a mistyped parameter", {"requireDates": True}, "unknown field `requireDates`: did you mean `requireDate`?"),
    ]
    flow = lambda made: json.dumps(made, ensure_ascii=False)
    lines = ["# Written by tests/cases/generate/hmac_auth.py.", 'about: "hmacAuth: signatures of requests and digests of bodies, their age and their replay, and every way to get them wrong"', "resources:"]
    lines += [f"  - {flow(resource)}" for resource in RESOURCES] + ["cases:"]
    for made in CASES:
        lines.append(f"  - note: {flow(made['note'])}")
        lines += [f"    {key}: {flow(made[key])}" for key in ("chain", "request", "want", "sequence", "except") if key in made]
    lines.append("refusals:")
    for note, params, says in refusals:
        lines += [f"  - note: {flow(note)}", f"    chain: {flow({'request': [{'policy': 'hmacAuth', 'params': params}]})}", f"    says: {flow(says)}"]
    FILE.write_text("\n".join(lines) + "\n")
    print(len(CASES), "cases,", len(refusals), "refusals,", COMPARED, "signatures compared with the package's")


write()

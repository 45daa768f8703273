"""Writes tests/cases/basic-auth.yaml: hashes and credentials by Python's own hashlib and base64, not by our code."""

import base64
import hashlib
import json
import pathlib


def encode(data):
    return base64.b64encode(data if isinstance(data, bytes) else data.encode()).decode()


def hashed(password, salt, rounds):
    digest = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, rounds)
    bare = lambda data: base64.b64encode(data).decode().rstrip("=")
    return f"$pbkdf2-sha256$i={rounds}${bare(salt)}${bare(digest)}"


def consumer(name, username, password, groups=()):
    credential = {"username": username, **password}
    spec = {"basicAuth": credential, "groups": list(groups)}
    return {"apiVersion": "postern/v1", "kind": "Consumer", "metadata": {"name": name}, "spec": spec}


ANN = hashed("correct horse battery staple", b"0123456789abcdef", 1000)
RESOURCES = [
    consumer("basic-ann", "ann", {"passwordHash": ANN}, ["admins"]),
    consumer("basic-ben", "ben", {"passwordHash": hashed("one:round:and:colons", b"\x00\xff" * 16, 1)}),
    consumer("basic-cid", "cid@example.com", {"passwordHash": hashed("ten thousand", b"saltsalt", 10_000)}),
    consumer("basic-aladdin", "Aladdin", {"password": "open sesame"}),
    consumer("basic-test", "test", {"password": "123\u00a3"}),
    {"apiVersion": "postern/v1", "kind": "Consumer", "metadata": {"name": "basic-key"},
     "spec": {"apiKeys": [{"key": "basic-api-key"}]}},
]

BASIC = {"request": [{"policy": "basicAuth"}]}
CHALLENGE = 'Basic realm="api", charset="UTF-8"'
BODY = '{"title":"Unauthorized","status":401,"detail":"a valid user name and password are required"}'


def denied(reason, challenge=CHALLENGE):
    return {"verdict": "deny", "status": 401, "step": "basicAuth", "reason": "credentials_" + reason, "body": BODY,
            "headers": {"www-authenticate": challenge, "content-type": "application/problem+json"}}


def allowed(name, value, **more):
    return {"verdict": "allow", "status": 200, "consumer": name, "upstream": {"authorization": value}, **more}


def case(note, value, want, chain=BASIC):
    headers = [["authorization", one] for one in (value if isinstance(value, list) else [value])]
    return {"note": note, "chain": chain, "request": {"headers": headers}, "want": want}


def right(note, name, credentials, value=None):
    value = value or "Basic " + encode(credentials)
    return case(note, value, allowed(name, value))


def wrong(note, credentials):
    return case(note, "Basic " + encode(credentials), denied("wrong"))


def malformed(note, value):
    return case(note, value, denied("malformed"))


GOOD = "ann:correct horse battery staple"
VALUE = "Basic " + encode(GOOD)
CASES = [
    right("admits the example of RFC 7617, section 2", "basic-aladdin", "", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
    right("admits the example of RFC 7617, section 2.1", "basic-test", "", "Basic dGVzdDoxMjPCow=="),
    right("admits a password by a hash of 1000 rounds", "basic-ann", GOOD),
    right("admits a password with colons by a hash of one round", "basic-ben", "ben:one:round:and:colons"),
    right("admits a password by a hash of 10000 rounds", "basic-cid", "cid@example.com:ten thousand"),
    right("takes the scheme in lower case", "basic-ann", "", "basic " + encode(GOOD)),
    right("takes the scheme in upper case", "basic-ann", "", "BASIC " + encode(GOOD)),
    right("takes several spaces after the scheme", "basic-ann", "", "Basic   " + encode(GOOD)),
    wrong("denies a wrong password", "ann:correct horse battery stable"),
    wrong("denies an unknown user with the same answer", "eve:correct horse battery staple"),
    wrong("denies the password of another user", "ben:correct horse battery staple"),
    wrong("denies an empty password", "ann:"),
    wrong("denies an empty user name", ":correct horse battery staple"),
    wrong("denies nothing at all", ":"),
    wrong("denies a user name in another case", "Ann:correct horse battery staple"),
    wrong("denies a password with a space more", "ann:correct horse battery staple "),
    wrong("denies a part of a password", "ben:one"),
    wrong("denies the hash in place of the password", "ann:" + ANN),
    wrong("denies a consumer without a password", "basic-key:basic-api-key"),
    wrong("denies the name of a consumer in place of its user name", "basic-ann:correct horse battery staple"),
    wrong("denies a password in another character set", b"test:123\xa3"),
    wrong("denies a user name that is not UTF-8", b"\xff\xfe:123"),
    wrong("denies a user name with a byte order mark", "\ufeffann:correct horse battery staple"),
    {"note": "denies a request without credentials", "chain": BASIC, "want": denied("missing")},
    case("denies a token", "Bearer " + encode(GOOD), denied("missing")),
    case("denies the scheme alone", "Basic", denied("missing")),
    case("denies credentials without a scheme", encode(GOOD), denied("missing")),
    case("denies a scheme that only starts so", "Basically " + encode(GOOD), denied("missing")),
    case("denies a tab in place of the space", "Basic\t" + encode(GOOD), denied("missing")),
    malformed("denies credentials without a colon", "Basic " + encode("ann")),
    malformed("denies credentials in plain", "Basic " + GOOD),
    malformed("denies base64 without its padding", "Basic " + encode("ben:one:round:and:colons!").rstrip("=")),
    malformed("denies base64 with too much padding", "Basic " + encode("abc:abcde") + "="),
    malformed("denies the alphabet of URLs", "Basic " + base64.urlsafe_b64encode(b"ann:\xff\xfe>>>???").decode()),
    malformed("denies a second spelling of the same bytes", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZR=="),
    malformed("denies something after the credentials", VALUE + " x"),
    malformed("denies a parameter in place of the credentials", 'Basic realm="api"'),
    malformed("denies a control character in the password", "Basic " + encode("ann:correct\nhorse")),
    malformed("denies a null at the end of the password", "Basic " + encode(GOOD + "\0")),
    malformed("denies a null in the user name", "Basic " + encode("ann\0:" + GOOD)),
    malformed("denies credentials of more than 1024 characters", "Basic " + encode("ann:" + "a" * 800)),
    malformed("denies two headers even if both are right", [VALUE, VALUE]),
    malformed("denies two headers of which one is right", ["Basic " + encode("eve:guess"), VALUE]),
    malformed("denies two schemes in one header", VALUE + ", Bearer abc"),
    case("names the realm", "Basic " + encode("eve:guess"), denied("wrong", 'Basic realm="orders & more", charset="UTF-8"'),
         {"request": [{"policy": "basicAuth", "params": {"realm": "orders & more"}}]}),
    case("keeps the credentials from the upstream if told so", VALUE, allowed("basic-ann", None),
         {"request": [{"policy": "basicAuth", "params": {"forward": False}}]}),
    case("forwards the credentials if told so", VALUE, allowed("basic-ann", VALUE),
         {"request": [{"policy": "basicAuth", "params": {"forward": True}}]}),
    case("tells later steps who the caller is", VALUE, allowed("basic-ann", VALUE),
         {"request": [{"policy": "basicAuth"}, {"policy": "roleCheck", "params": {"groups": ["admins"]}}]}),
    case("sees credentials that an earlier step removed no more", VALUE, denied("missing"),
         {"request": [{"policy": "headers", "params": {"remove": ["authorization"]}}, {"policy": "basicAuth"}]}),
    {"note": "remembers the right password and still denies all others", "chain": BASIC, "sequence": [
        {"request": {"headers": [["authorization", "Basic " + encode(credentials)]]}, "want": want}
        for credentials, want in [
            ("ann:guess", denied("wrong")),
            (GOOD, allowed("basic-ann", VALUE)),
            (GOOD, allowed("basic-ann", VALUE)),
            ("ann:guess", denied("wrong")),
            ("ben:correct horse battery staple", denied("wrong")),
            ("eve:correct horse battery staple", denied("wrong")),
            (GOOD, allowed("basic-ann", VALUE)),
        ]
    ]},
]

REFUSALS = [
    {"note": "a realm cannot end its own quotes", "chain": {"request": [{"policy": "basicAuth", "params": {"realm": 'a"b'}}]},
     "says": 'a realm cannot have `"` or `\\` in it'},
    {"note": "a realm cannot escape its own quotes", "chain": {"request": [{"policy": "basicAuth", "params": {"realm": "a\\"}}]},
     "says": 'a realm cannot have `"` or `\\` in it'},
    {"note": "a realm cannot start a header of its own", "chain": {"request": [{"policy": "basicAuth", "params": {"realm": "a\r\nb"}}]},
     "says": "control character"},
    {"note": "whether to forward is yes or no", "chain": {"request": [{"policy": "basicAuth", "params": {"forward": "no"}}]},
     "says": "expected `true` or `false`"},
    {"note": "users are consumers, not parameters", "chain": {"request": [{"policy": "basicAuth", "params": {"users": {}}}]},
     "says": "unknown field `users`"},
    {"note": "a response has no credentials", "chain": {"response": [{"policy": "basicAuth"}]},
     "says": "policy `basicAuth` cannot run in `response`"},
]

ABOUT = "basicAuth: the user name and password of a consumer; everything else is refused alike"


def lines(values):
    return "".join(f"  - {json.dumps(value, ensure_ascii=True)}\n" for value in values)


text = (
    "# Written by generate/basic_auth.py; JSON is YAML too.\n"
    f'about: "{ABOUT}"\nresources:\n{lines(RESOURCES)}cases:\n{lines(CASES)}refusals:\n{lines(REFUSALS)}'
)
(pathlib.Path(__file__).parent.parent / "basic-auth.yaml").write_text(text)
print(len(CASES), "cases,", len(REFUSALS), "refusals")

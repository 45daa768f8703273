#!/usr/bin/env python3
"""Writes tests/cases/json-schema.yaml and tests/cases/json-schema-pairs.json.

What is expected of each pair of a schema and an instance is computed by another implementation, Python's `jsonschema`
(pip install jsonschema), with numbers as exact decimals. Run it from anywhere; the files are written beside it.
"""

import json
import random
from decimal import Decimal, getcontext
from pathlib import Path

from jsonschema import Draft202012Validator, validators

getcontext().prec = 2000
HERE = Path(__file__).resolve().parent.parent


def is_integer(_checker, instance):
    """A number without a fraction, however it is written (JSON Schema, section 6.1.1)."""
    if isinstance(instance, bool):
        return False
    return isinstance(instance, int) or isinstance(instance, Decimal) and instance == instance.to_integral_value()


Oracle = validators.extend(
    Draft202012Validator, type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", is_integer)
)


def fits(schema, text):
    schema = json.loads(json.dumps(schema), parse_float=Decimal)
    instance = json.loads(text, parse_float=Decimal)
    return Oracle(schema, format_checker=Draft202012Validator.FORMAT_CHECKER).is_valid(instance)


# Schemas and instances, each written as JSON.
TREE = {"$defs": {"node": {"type": "object", "required": ["v"], "additionalProperties": False,
                           "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}}}},
        "$ref": "#/$defs/node"}
CURATED = [
    (True, ["1", "null", "{}"]),
    (False, ["1", "null", "{}"]),
    ({}, ["1", "[]", '"a"']),
    ({"type": "null"}, ["null", "0", "false", '""']),
    ({"type": "boolean"}, ["true", "false", "0", '"true"', "null"]),
    ({"type": "integer"}, ["1", "1.0", "1.5", "-3", "1e2", "1e-2", "100e-2", "true", '"1"', "12345678901234567890123", "0.0", "-0"]),
    ({"type": "number"}, ["1", "1.5", "-2e10", "true", '"1"']),
    ({"type": "string"}, ['"a"', '""', "1", "null"]),
    ({"type": ["string", "null"]}, ['"a"', "null", "1"]),
    ({"type": ["integer", "string"]}, ["1", "1.5", '"x"', "[]"]),
    ({"enum": [1, "a", None, [1, 2], {"a": 1}]},
     ["1", "1.0", "true", '"a"', "null", "[1,2]", "[2,1]", '{"a":1.0}', '{"a":1,"b":2}', "2", '""']),
    ({"enum": [True]}, ["true", "1", "false"]),
    ({"enum": [0]}, ["0", "false", "0.0", "-0", "0e5"]),
    ({"const": {"a": [1, False], "b": "x"}}, ['{"b":"x","a":[1,false]}', '{"b":"x","a":[1,0]}', '{"a":[1,false]}', "null"]),
    ({"const": 1}, ["1", "1.0", "1e0", "true", "2"]),
    ({"const": "é"}, ['"é"', '"\\u00e9"', '"e\\u0301"', '"e"']),
    ({"const": None}, ["null", "false", "0"]),
    ({"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}, ["{}", '{"a":1}', '{"a":"1"}', '{"b":1,"a":1}', '{"c":[]}', "1"]),
    ({"required": ["a", "b"]}, ["{}", '{"a":1}', '{"a":1,"b":null}', "[]"]),
    ({"properties": {"a": {}}, "additionalProperties": False}, ["{}", '{"a":1}', '{"b":1}', '{"a":1,"b":1}']),
    ({"properties": {"a": {}}, "additionalProperties": {"type": "integer"}}, ['{"a":"x"}', '{"b":1}', '{"b":"x"}']),
    ({"patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": False}, ['{"x-a":"1"}', '{"x-a":1}', '{"ax-":"1"}', "{}"]),
    ({"patternProperties": {"a": {"type": "integer"}, "b": {"minimum": 5}}}, ['{"ab":7}', '{"ab":4}', '{"a":"x"}', '{"c":"x"}']),
    ({"properties": {"foo": {"maxItems": 2}}, "patternProperties": {"f.o": {"minItems": 1}}, "additionalProperties": {"type": "integer"}},
     ['{"foo":[]}', '{"foo":[1]}', '{"foo":[1,2,3]}', '{"fxo":[]}', '{"bar":1}', '{"bar":[1]}']),
    ({"propertyNames": {"maxLength": 3, "pattern": "^[a-z]*$"}}, ["{}", '{"abc":1}', '{"abcd":1}', '{"A":1}', "[]"]),
    ({"propertyNames": False}, ["{}", '{"a":1}']),
    ({"propertyNames": {"enum": ["a", "b"]}}, ['{"a":1,"b":2}', '{"c":1}']),
    ({"minProperties": 1, "maxProperties": 2}, ["{}", '{"a":1}', '{"a":1,"b":2}', '{"a":1,"b":2,"c":3}', '"abc"']),
    ({"dependentRequired": {"card": ["address", "name"]}}, ["{}", '{"card":1}', '{"card":1,"address":2}', '{"card":1,"address":2,"name":3}', '{"address":1}']),
    ({"dependentSchemas": {"a": {"required": ["b"], "properties": {"b": {"type": "integer"}}}}}, ['{"a":1}', '{"a":1,"b":2}', '{"a":1,"b":"x"}', '{"b":"x"}']),
    ({"dependentSchemas": {"a": False}}, ['{"a":1}', "{}"]),
    ({"items": {"type": "integer"}}, ["[]", "[1,2]", '[1,"x"]', "{}"]),
    ({"items": False}, ["[]", "[1]"]),
    ({"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False}, ["[]", "[1]", '[1,"x"]', '[1,"x",2]', '["x"]']),
    ({"prefixItems": [{"type": "integer"}], "items": {"type": "boolean"}}, ["[1,true,false]", "[1,2]", "[true]"]),
    ({"contains": {"minimum": 5}}, ["[]", "[1,2]", "[1,5]", "[9]", "{}"]),
    ({"contains": {"const": 1}, "minContains": 2, "maxContains": 3}, ["[1]", "[1,1]", "[1,2,1,1]", "[1,1,1,1]", "[]"]),
    ({"contains": {"const": 1}, "minContains": 0}, ["[]", "[2]", "[1]"]),
    ({"contains": {"const": 1}, "maxContains": 1}, ["[]", "[1]", "[1,1]"]),
    ({"minItems": 1, "maxItems": 2}, ["[]", "[1]", "[1,2]", "[1,2,3]", '"abc"']),
    ({"uniqueItems": True}, ["[]", "[1,2,3]", "[1,1]", "[1,1.0]", "[1,true]", "[0,false]", '["a","b"]', '["a","\\u0061"]',
                             '[{"a":1,"b":2},{"b":2,"a":1}]', '[{"a":1},{"a":2}]', "[[1],[1]]", "[[1],[true]]", "[null,null]", "[[],{}]", '["1",1]', "{}"]),
    ({"uniqueItems": False}, ["[1,1]"]),
    ({"minLength": 2, "maxLength": 3}, ['"a"', '"ab"', '"abc"', '"abcd"', '"\\ud83d\\ude00"', '"😀😀"', '"ééé"', '"e\\u0301e\\u0301"', "1"]),
    ({"pattern": "^a+$"}, ['"aaa"', '"b"', '"ab"', '""', "1"]),
    ({"pattern": "b"}, ['"abc"', '"ac"']),
    ({"pattern": "^\\d{3}-[A-F]{2}(x|y)?$"}, ['"123-AB"', '"123-ABx"', '"123-abx"', '"12-AB"']),
    ({"minimum": 1, "maximum": 3}, ["0", "1", "1.0", "2.5", "3", "3.0000001", "3.00000000000000000000001", "0.99999999999999999999", '"9"']),
    ({"exclusiveMinimum": 1, "exclusiveMaximum": 3}, ["1", "1.0", "1.00000000000000000001", "2", "3", "2.9999999999999999999999"]),
    ({"minimum": -5, "maximum": -1.5}, ["-5", "-5.1", "-1.5", "-1.4", "-2", "0", "1e-400", "-1e400"]),
    ({"minimum": 0, "exclusiveMinimum": -1, "maximum": 1e3}, ["0", "-0", "-1e-9", "1000", "1000.5", "1e3", "1e999"]),
    ({"multipleOf": 2}, ["0", "2", "3", "-4", "2.0", "4.2", "1e308", "7"]),
    ({"multipleOf": 0.01}, ["19.99", "0.3", "0.015", "1e-2", "1e-3", "1", "-0.01", "4.35", "1.005"]),
    ({"multipleOf": 0.1}, ["0.3", "0.35", "1.1", "10", "0.30000000000000004"]),
    ({"multipleOf": 1.5}, ["3", "4.5", "4", "-1.5", "0"]),
    ({"allOf": [{"type": "object"}, {"required": ["a"]}]}, ['{"a":1}', "{}", "1"]),
    ({"anyOf": [{"type": "string"}, {"minimum": 10}]}, ['"x"', "10", "5", "null"]),
    ({"oneOf": [{"type": "integer"}, {"minimum": 10}]}, ["5", "10", "10.5", "9.5", '"x"']),
    ({"oneOf": [{"const": 1}, {"const": 2}, {"const": 3}]}, ["1", "4"]),
    ({"not": {"type": "string"}}, ['"x"', "1"]),
    ({"not": {"not": {"type": "string"}}}, ['"x"', "1"]),
    ({"not": True}, ["1"]),
    ({"if": {"properties": {"k": {"const": "a"}}, "required": ["k"]}, "then": {"required": ["x"]}, "else": {"required": ["y"]}},
     ['{"k":"a","x":1}', '{"k":"a","y":1}', '{"k":"b","y":1}', '{"y":1}', "{}"]),
    ({"if": {"type": "integer"}, "then": {"minimum": 3}}, ["2", "3", '"x"']),
    ({"if": {"type": "integer"}, "else": {"minLength": 2}}, ["1", '"x"', '"xy"']),
    (TREE, ['{"v":1}', '{"v":1,"next":{"v":2}}', '{"v":1,"next":{"v":"x"}}', '{"v":1,"next":{"w":2}}', '{"v":1,"next":{"v":2,"next":{"v":3}}}']),
    ({"type": "array", "items": {"$ref": "#"}}, ["[]", "[[],[[]]]", "[1]", "[[[1]]]"]),
    ({"properties": {"a": {"type": "integer"}, "b": {"$ref": "#/properties/a"}}}, ['{"b":1}', '{"b":"x"}']),
    ({"$defs": {"a/b": {"type": "integer"}, "c~d": {"type": "string"}, "e f": {"type": "null"}},
      "properties": {"x": {"$ref": "#/$defs/a~1b"}, "y": {"$ref": "#/$defs/c~0d"}, "z": {"$ref": "#/$defs/e%20f"}}},
     ['{"x":1,"y":"a","z":null}', '{"x":"a"}', '{"y":1}', '{"z":1}']),
    ({"$defs": {"small": {"maximum": 9}}, "$ref": "#/$defs/small", "minimum": 3}, ["2", "5", "10"]),
    ({"anyOf": [{"$ref": "#/$defs/s"}, {"type": "integer"}], "$defs": {"s": {"type": "string"}}}, ['"a"', "1", "[]"]),
    ({"type": "string", "format": "uuid"}, ['"2eb8aa08-aa98-11ea-b4aa-73b441d16380"', '"2eb8aa08aa9811eab4aa73b441d16380"', '"x"', "1"]),
    ({"format": "ipv4"}, ['"192.0.2.1"', '"192.0.2.256"', '"192.0.02.1"', '"::1"', "1"]),
    ({"format": "ipv6"}, ['"::1"', '"2001:db8::1"', '"1::2::3"', '"192.0.2.1"', "[]"]),
    ({"format": "date"}, ['"2024-02-29"', '"2023-02-29"', '"2024-13-01"', '"x"', "1"]),
    ({"title": "t", "description": "d", "default": 1, "examples": [1], "deprecated": True, "readOnly": True, "writeOnly": False,
      "$comment": "c", "$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://example.com/s", "type": "integer"}, ["1", '"x"']),
    ({"type": "object", "required": ["name", "tags"], "additionalProperties": False,
      "properties": {"name": {"type": "string", "minLength": 1}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
                     "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True}}},
     ['{"name":"a","tags":[]}', '{"name":"","tags":[]}', '{"name":"a","tags":["x","x"]}', '{"name":"a","tags":[],"age":151}',
      '{"name":"a","tags":[],"more":1}', '{"name":"a"}']),
]

NAMES = ["a", "b", "c", "ab"]


def random_instance(rng, depth=0):
    kinds = ["null", "bool", "int", "float", "text"] + ([] if depth > 2 else ["list", "map", "list", "map"])
    match rng.choice(kinds):
        case "null": return "null"
        case "bool": return rng.choice(["true", "false"])
        case "int": return str(rng.randint(-3, 12))
        case "float": return rng.choice(["1.0", "0.5", "2.25", "1e1", "-0.1", "3.50"])
        case "text": return json.dumps(rng.choice(["", "a", "ab", "abc", "é", "x-1"]))
        case "list": return "[" + ",".join(random_instance(rng, depth + 1) for _ in range(rng.randint(0, 3))) + "]"
        case _:
            names = rng.sample(NAMES, rng.randint(0, 3))
            return "{" + ",".join(f"{json.dumps(name)}:{random_instance(rng, depth + 1)}" for name in names) + "}"


def random_schema(rng, depth=0):
    if depth > 2 or rng.random() < 0.1:
        return rng.choice([True, False, {"type": "integer"}, {"type": "string"}, {"minimum": 2}, {"maxLength": 1}, {"$ref": "#/$defs/d"}])
    deeper = lambda: random_schema(rng, depth + 1)
    makers = {
        "type": lambda: rng.choice(["object", "array", "integer", "number", "string", ["null", "string"], ["object", "array"]]),
        "enum": lambda: [json.loads(random_instance(rng, 1)) for _ in range(3)],
        "const": lambda: json.loads(random_instance(rng, 2)),
        "properties": lambda: {name: deeper() for name in rng.sample(NAMES, 2)},
        "required": lambda: rng.sample(NAMES, rng.randint(1, 2)),
        "additionalProperties": deeper,
        "patternProperties": lambda: {rng.choice(["^a", "b", "c$"]): deeper()},
        "propertyNames": deeper,
        "minProperties": lambda: rng.randint(0, 2),
        "maxProperties": lambda: rng.randint(0, 3),
        "dependentRequired": lambda: {rng.choice(NAMES): rng.sample(NAMES, 1)},
        "dependentSchemas": lambda: {rng.choice(NAMES): deeper()},
        "items": deeper,
        "prefixItems": lambda: [deeper() for _ in range(rng.randint(1, 2))],
        "contains": deeper,
        "minItems": lambda: rng.randint(0, 2),
        "maxItems": lambda: rng.randint(0, 3),
        "uniqueItems": lambda: True,
        "minLength": lambda: rng.randint(0, 2),
        "maxLength": lambda: rng.randint(0, 3),
        "pattern": lambda: rng.choice(["^a", "b", "^[a-z]*$"]),
        "minimum": lambda: rng.choice([0, 1, 0.5, -1]),
        "maximum": lambda: rng.choice([3, 10, 2.25]),
        "exclusiveMinimum": lambda: rng.choice([0, 0.5]),
        "multipleOf": lambda: rng.choice([2, 0.5, 0.25, 3]),
        "allOf": lambda: [deeper(), deeper()],
        "anyOf": lambda: [deeper(), deeper()],
        "oneOf": lambda: [deeper(), deeper()],
        "not": deeper,
    }
    schema = {keyword: makers[keyword]() for keyword in rng.sample(sorted(makers), rng.randint(1, 4))}
    if "const" in schema:
        schema.pop("enum", None)
    if rng.random() < 0.2:
        schema["if"] = deeper()
        schema["then"] = deeper()
        schema["else"] = deeper()
    return schema


def pairs():
    rng = random.Random(2012)
    for schema, instances in CURATED:
        yield schema, instances
    for _ in range(150):
        schema = random_schema(rng)
        if isinstance(schema, dict):
            schema["$defs"] = {"d": {"type": ["integer", "array"], "items": {"$ref": "#/$defs/d"}}}
        else:
            continue
        yield schema, sorted({random_instance(rng) for _ in range(5)})


def write_pairs():
    written, count = [], 0
    for schema, instances in pairs():
        Draft202012Validator.check_schema(schema)
        judged = [[text, fits(schema, text)] for text in instances]
        count += len(judged)
        written.append({"schema": schema, "instances": judged})
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False, separators=(",", ":")) for entry in written)
    (HERE / "json-schema-pairs.json").write_text(f"[\n{lines}\n]\n")
    print(len(written), "schemas,", count, "pairs")


# The corpus: how requests are answered.
PERSON = {"type": "object", "required": ["name"], "additionalProperties": False,
          "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 5}, "age": {"type": "integer", "minimum": 0},
                         "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "maxItems": 3},
                         "friends": {"type": "array", "items": {"$ref": "#"}}}}


def chain(schema, **params):
    return {"request": [{"policy": "jsonSchema", "params": {"schema": schema, **params}}]}


def request(body, content_type="application/json", method="POST", more=()):
    headers = ([["content-type", content_type]] if content_type else []) + [list(pair) for pair in more]
    made = {"method": method, "headers": headers}
    if body is not None:
        made["body"] = body
    return made


def problem(title, status, detail, errors=None):
    document = {"title": title, "status": status, "detail": detail}
    if errors:
        document["errors"] = [{"pointer": pointer, "message": message} for pointer, message in errors]
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def deny(reason, status=400, body=None):
    want = {"verdict": "deny", "status": status, "step": "jsonSchema", "reason": reason}
    if body:
        want["headers"] = {"content-type": "application/problem+json"}
        want["body"] = body
    return want


ALLOW = {"verdict": "allow", "status": 200}
VIOLATED = "the body does not fit its schema"


def judged(note, schema, body, errors=None, **params):
    """A case whose verdict is the oracle's; `errors` are the words that ours has for it."""
    good = fits(schema, body)
    assert not (good and errors), note
    status = params.get("status", 400)
    title = {400: "Bad Request", 422: "Unprocessable Content"}[status]
    want = ALLOW if good else deny("schema_violated", status, errors and problem(title, status, VIOLATED, errors))
    return {"note": note, "chain": chain(schema, **params), "request": request(body), "want": want}


def cases():
    person = lambda note, body, errors=None, **params: judged(note, PERSON, body, errors, **params)
    yield person("admits a body that fits", '{"name":"Ada","age":36}')
    yield person("admits a nested body by recursion", '{"name":"Ada","friends":[{"name":"Bob","friends":[{"name":"Eve"}]}]}')
    yield person("tells what is missing", '{"age":1}', [("", "property `name` is missing")])
    yield person("tells what must not be there", '{"name":"Ada","admin":true}', [("/admin", "must not be there")])
    yield person("tells of a wrong type", '{"name":5}', [("/name", "must be of type string")])
    yield person("tells all errors at once", '{"age":-1.5,"name":"","tags":["a","a","b","c"]}',
                 [("/age", "must be of type integer"), ("/age", "must be at least 0"), ("/name", "must have 1 to 5 characters"),
                  ("/tags", "must have at most 3 items"), ("/tags", "has an item twice")])
    yield person("points into arrays and recursion", '{"name":"Ada","friends":[{"name":"Bob"},{"name":""}]}',
                 [("/friends/1/name", "must have 1 to 5 characters")])
    yield person("counts characters, not bytes", '{"name":"ééééé"}')
    yield person("counts a character beyond the first plane once", '{"name":"\\ud83d\\ude00😀😀😀😀"}')
    yield person("takes 36.0 for an integer", '{"name":"Ada","age":36.0}')
    yield person("takes 3.6e1 for an integer", '{"name":"Ada","age":3.6e1}')
    yield person("is not fooled by an integer that a double would round", '{"name":"Ada","age":36.00000000000000000001}',
                 [("/age", "must be of type integer")])
    yield person("has the status that is asked for", '{}', [("", "property `name` is missing")], status=422)
    yield person("tells as many errors as asked for", '{"age":"x","tags":1,"more":2}', [("", "property `name` is missing"), ("/age", "must be of type integer")], maxErrors=2)
    yield {"note": "tells nothing if asked to", "chain": chain(PERSON, maxErrors=0), "request": request("{}"),
           "want": deny("schema_violated", 400, problem("Bad Request", 400, VIOLATED))}
    yield judged("escapes what a caller named", {"additionalProperties": {"type": "null"}}, '{"a/b~c\\"\\n<é":1}',
                 [('/a~1b~0c"\n<é', "must be of type null")])
    yield judged("cuts a long pointer", {"additionalProperties": False}, json.dumps({"k" * 600: 1}), [("/" + "k" * 255 + "…", "must not be there")])
    yield judged("is exact on decimals", {"multipleOf": 0.01}, "19.99")
    yield judged("is exact on what is no multiple", {"multipleOf": 0.01}, "19.995", [("", "must be a multiple of 0.01")])
    yield judged("tells of an enumeration", {"enum": ["red", "green"]}, '"blue"', [("", "must be one of the values that are allowed")])
    yield judged("tells of a constant", {"const": "v1"}, '"v2"', [("", "must be the one value that is allowed")])
    yield judged("tells of a pattern", {"pattern": "^[a-z]+$"}, '"A"', [("", "does not match the pattern")])
    yield judged("tells of a name", {"propertyNames": {"pattern": "^[a-z]+$"}}, '{"A":1}', [("/A", "has a name that is not allowed")])
    yield judged("tells of alternatives", {"anyOf": [{"type": "null"}, {"minimum": 5}]}, "1", [("", "fits none of the schemas of which it must fit one")])
    yield judged("tells of too many alternatives", {"oneOf": [{"type": "integer"}, {"minimum": 5}]}, "7",
                 [("", "fits more than one of the schemas of which it must fit exactly one")])
    yield judged("tells of no alternative", {"oneOf": [{"type": "null"}, {"minimum": 5}]}, "1", [("", "fits none of the schemas of which it must fit exactly one")])
    yield judged("tells of what must not be", {"not": {"type": "string"}}, '"x"', [("", "fits a schema that it must not fit")])
    yield judged("tells of bounds", {"exclusiveMinimum": 1, "exclusiveMaximum": 0.5}, "1", [("", "must be greater than 1"), ("", "must be less than 0.5")])
    yield judged("tells of a dependency", {"dependentRequired": {"card": ["name"]}}, '{"card":1}', [("", "property `name` is missing, which `card` needs")])
    yield judged("tells of contained items", {"contains": {"const": 1}, "minContains": 2, "maxContains": 3}, "[1]", [("", "has 1 of the items of which it must have 2 to 3")])
    yield judged("tells of a format", {"format": "uuid"}, '"x"', [("", "is no `uuid`")])
    yield judged("takes a condition's branch", {"if": {"required": ["a"]}, "then": {"required": ["b"]}}, '{"a":1}', [("", "property `b` is missing")])
    yield judged("refuses everything with false", False, "1", [("", "must not be there")])
    yield judged("admits everything with true", True, "[1]")
    for text, good in [("2024-02-29T23:59:60Z", True), ("2023-02-29T00:00:00Z", False), ("2024-02-29 00:00:00Z", False)]:
        yield {"note": f"checks the time {text}", "chain": chain({"format": "date-time"}), "request": request(json.dumps(text)),
               "want": ALLOW if good else deny("schema_violated", 400, problem("Bad Request", 400, VIOLATED, [("", "is no `date-time`")]))}
    # What comes before the schema.
    not_json = deny("body_not_json", 400, problem("Bad Request", 400, "the body is not valid JSON"))
    for note, body in [("refuses what is not JSON", "{name: Ada}"), ("refuses what follows the value", '{"name":"Ada"} x'),
                       ("refuses a name that is there twice", '{"name":"Ada","name":""}'),
                       ("refuses a name that is there twice in disguise", '{"name":"Ada","n\\u0061me":""}'),
                       ("refuses a lone surrogate", '{"name":"\\ud800"}'), ("refuses a comment", '{"name":"Ada"/**/}'),
                       ("refuses bytes that are no text", {"hex": "7b226e616d65223a22ff227d"}),
                       ("refuses a mark of byte order", {"hex": "efbbbf7b7d"})]:
        yield {"note": note, "chain": chain(PERSON), "request": request(body), "want": not_json}
    missing = deny("body_missing", 400, problem("Bad Request", 400, "a body is required"))
    yield {"note": "refuses a request without a body", "chain": chain(PERSON), "request": request(None), "want": missing}
    yield {"note": "refuses an empty body", "chain": chain(PERSON), "request": request(""), "want": missing}
    yield {"note": "admits a request without a body where told", "chain": chain(PERSON, allowEmpty=True), "request": request(None, None, "GET"), "want": ALLOW}
    yield {"note": "checks a body where none is needed", "chain": chain(PERSON, allowEmpty=True), "request": request("{}"), "want": deny("schema_violated")}
    unsupported = deny("content_type_unsupported", 415, problem("Unsupported Media Type", 415, "the body must be JSON, and `Content-Type` must say so"))
    good = '{"name":"Ada"}'
    for note, content_type in [("refuses a body of another type", "text/plain"), ("refuses a body without a type", None), ("refuses a type that only starts like JSON", "application/jsonp"),
                               ("refuses a type in a parameter", "text/plain; a=application/json"),
                               ("refuses two types in one", "application/x-www-form-urlencoded, a+json"), ("refuses two types that both match", "application/json, application/a+json"),
                               ("refuses a second type behind a parameter", "application/json; a=b, text/plain"),
                               ("refuses another charset", "application/json; charset=utf-7"), ("refuses a second charset", "application/json; charset=utf-8; charset=utf-16"),
                               ("refuses a type of three parts", "application/a/b+json")]:
        yield {"note": note, "chain": chain(PERSON), "request": request(good, content_type), "want": unsupported}
    for note, content_type in [("takes parameters of the type", "application/json; charset=utf-8"), ("takes a type in any case", "Application/JSON"),
                               ("takes a charset that is part of UTF-8", 'application/json;charset="US-ASCII"'),
                               ("takes a type that is built on JSON", "application/merge-patch+json")]:
        yield {"note": note, "chain": chain(PERSON), "request": request(good, content_type), "want": ALLOW}
    own = chain(PERSON, contentTypes=["application/vnd.example.v1+json", "Text/*"])
    yield {"note": "takes the types that it is told to", "chain": own, "request": request(good, "application/vnd.example.v1+json"), "want": ALLOW}
    yield {"note": "takes types by a pattern", "chain": own, "request": request(good, "text/x-json"), "want": ALLOW}
    yield {"note": "takes no other types then", "chain": own, "request": request(good), "want": unsupported}
    yield {"note": "refuses two types", "chain": chain(PERSON), "request": request(good, more=[("content-type", "text/plain")]), "want": unsupported}
    yield {"note": "refuses a compressed body", "chain": chain(PERSON), "request": request(good, more=[("content-encoding", "gzip")]),
           "want": deny("content_encoded", 415, problem("Unsupported Media Type", 415, "the body must not be compressed or otherwise encoded"))}
    yield {"note": "takes a body that says that it is not encoded", "chain": chain(PERSON), "request": request(good, more=[("content-encoding", "identity")]), "want": ALLOW}
    # Attacks.
    complex_ = deny("body_too_complex", 400, problem("Bad Request", 400, "the body is too complex to be checked"))
    yield {"note": "refuses a body that nests deep", "chain": chain(True), "request": request({"repeat": ["[", 20000]}), "want": complex_}
    exhausted = deny("budget_exhausted", 500, problem("Internal Server Error", 500, "a policy could not be evaluated"))
    yield {"note": "fails a check that would take too long",
           "chain": chain({"$defs": {"d": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/d"}}] * 2}}, "$ref": "#/$defs/d"}),
           "request": request("[" * 40 + "1" + "]" * 40), "want": exhausted}
    yield {"note": "takes a long list", "chain": chain({"uniqueItems": False, "items": {"type": "integer"}}), "request": request("[" + "0," * 4000 + "0]"), "want": ALLOW}
    yield {"note": "takes a long pattern's time on a long text", "chain": chain({"pattern": "^(a+)+$"}), "request": request(json.dumps("a" * 3000 + "b")), "want": deny("schema_violated")}
    yield {"note": "refuses a body that is too large", "chain": {**chain(PERSON), "maxBodySize": 100}, "request": request(json.dumps({"name": "x" * 200})),
           "want": {"verdict": "deny", "status": 413, "step": "jsonSchema", "reason": "body_too_large"}}
    yield {"note": "reports in shadow mode only", "chain": {"request": [{"policy": "jsonSchema", "mode": "shadow", "params": {"schema": PERSON}}]}, "request": request("{}"),
           "want": {**ALLOW, "notes": ["shadow=jsonSchema:schema_violated"]}}


def refusals():
    place = "spec.request[0].params.schema"
    for note, schema, says in [
        ("a schema is a mapping", [], f"{place}: expected a JSON Schema (a mapping), found a list"),
        ("a subschema is a mapping", {"items": 5}, f"{place}.items: expected a JSON Schema (a mapping), or `true` or `false`"),
        ("a keyword that is not supported", {"properties": {"a": {"unevaluatedProperties": False}}}, f"{place}.properties.a.unevaluatedProperties: keyword `unevaluatedProperties` is not supported"),
        ("a keyword that is mistyped", {"requird": ["a"]}, "keyword `requird` is not supported: did you mean `required`?"),
        ("a keyword of an older draft", {"definitions": {}}, f"{place}.definitions: keyword `definitions` is not supported"),
        ("another draft", {"$schema": "http://json-schema.org/draft-07/schema#"}, "other drafts are not supported"),
        ("an identifier inside", {"items": {"$id": "x"}}, f"{place}.items[\"$id\"]: keyword `$id` is not supported"),
        ("a dynamic reference", {"$dynamicRef": "#x"}, "keyword `$dynamicRef` is not supported"),
        ("a type that does not exist", {"type": "text"}, f"{place}.type: expected `null`, `boolean`"),
        ("a reference to another document", {"$ref": "https://example.com/schema"}, f"{place}[\"$ref\"]: points to no schema in this one"),
        ("a reference to nothing", {"$ref": "#/$defs/x"}, "points to no schema in this one"),
        ("a reference to what is no schema", {"properties": {"a": {}}, "$ref": "#/properties"}, "points to no schema in this one"),
        ("a schema that refers to itself", {"$ref": "#"}, f"{place}: refers to itself without end"),
        ("schemas that refer to each other", {"$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}}}, "refers to itself without end"),
        ("a pattern that cannot be", {"pattern": "("}, f"{place}.pattern: `(` is no regular expression"),
        ("a pattern that looks ahead", {"pattern": "^(?!a)"}, "is no regular expression"),
        ("a pattern of names that cannot be", {"patternProperties": {"[": {}}}, f"{place}.patternProperties: `[` is no regular expression"),
        ("a format that is not enforced", {"format": "email"}, f"{place}.format: expected `date-time`, `date`, `uuid`, `ipv4`, `ipv6`: other formats are not supported"),
        ("a divisor of nothing", {"multipleOf": 0}, f"{place}.multipleOf: expected a number greater than 0"),
        ("a size that is none", {"minLength": -1}, f"{place}.minLength: expected a whole number from 0"),
        ("a bound that is no number", {"minimum": "1"}, f"{place}.minimum: expected a number"),
        ("a bound that is not exact", {"maximum": 1e30}, "a number this large would not be kept exactly"),
        ("names that are none", {"required": "a"}, f"{place}.required: expected a list of strings"),
        ("alternatives that are none", {"anyOf": []}, f"{place}.anyOf: expected a list of at least 1 schema"),
        ("an enumeration of nothing", {"enum": []}, f"{place}.enum: expected a list of at least 1 value"),
        ("a branch without a condition", {"then": {}}, f"{place}.then: means nothing without `if`"),
        ("properties that are no mapping", {"properties": []}, f"{place}.properties: expected a mapping of names to schemas"),
    ]:
        yield {"note": note, "chain": chain(schema), "says": says}
    yield {"note": "a media type that is none", "chain": chain(True, contentTypes=["json"]), "says": "spec.request[0].params.contentTypes[0]: expected a media type"}
    yield {"note": "a status that is no refusal", "chain": chain(True, status=200), "says": "expected a whole number from 400 to 499"}
    yield {"note": "a schema is needed", "chain": {"request": [{"policy": "jsonSchema"}]}, "says": "missing required field `schema`"}
    yield {"note": "a response has no body that we read", "chain": {"response": chain(True)["request"]}, "says": "policy `jsonSchema` cannot run in `response`"}


def flow(value):
    return json.dumps(value, ensure_ascii=False)


def write_corpus():
    made, refused = list(cases()), list(refusals())
    lines = ["# Written by tests/cases/generate/json_schema.py; what fits is what Python's jsonschema says.",
             'about: "jsonSchema: bodies that fit and that do not, what comes before the schema, and attacks on the check"', "cases:"]
    for case in made:
        lines.append(f"  - note: {flow(case['note'])}")
        lines += [f"    {key}: {flow(case[key])}" for key in ("chain", "request", "want")]
    lines.append("refusals:")
    for refusal in refused:
        lines += [f"  - note: {flow(refusal['note'])}", f"    chain: {flow(refusal['chain'])}", f"    says: {flow(refusal['says'])}"]
    (HERE / "json-schema.yaml").write_text("\n".join(lines) + "\n")
    print(len(made), "cases,", len(refused), "refusals")


write_pairs()
write_corpus()

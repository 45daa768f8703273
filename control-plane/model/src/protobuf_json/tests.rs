//! Tests of both directions, on samples and on every message. `prost-reflect`'s own reader is the reference.

use envoy_types::pb::{
    envoy::{
        config::{cluster::v3::Cluster, core::v3::Node, listener::v3::Listener},
        service::discovery::v3::DiscoveryRequest,
    },
    google::protobuf::{Any, UInt32Value},
};
use proptest::{prelude::*, sample::Index};
use prost::{Message, Name};
use prost_reflect::{
    Cardinality, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage, Value,
};
use serde_json::{Value as Json, json};

use super::*;

/// Reads a message strictly, and compares the faults.
fn check(name: &str, json: Json, expect: &[&str]) {
    let mut json = json;
    json["@type"] = format!("type.googleapis.com/{name}").into();
    let found = match read_any(&json, Unknown::Refused) {
        Ok(_) => Vec::new(),
        Err(Faults(faults)) => faults.iter().map(Fault::to_string).collect(),
    };
    assert_eq!(found, expect, "{json}");
}

const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";

#[test]
fn reads_both_spellings_of_a_field_and_what_it_may_be() {
    let snake = json!({"name": "a", "connect_timeout": "0.25s", "type": "STRICT_DNS", "lb_policy": 2,
        "per_connection_buffer_limit_bytes": "32768", "respect_dns_ttl": true, "metadata": null});
    let camel = json!({"name": "a", "connectTimeout": "0.250s", "type": "STRICT_DNS", "lbPolicy": "RING_HASH" ,
        "perConnectionBufferLimitBytes": 32768.0, "respectDnsTtl": true});
    let mut ring = snake.clone();
    ring["lb_policy"] = "RING_HASH".into();
    let cluster: Cluster = read(&ring, Unknown::Refused).unwrap();
    assert_eq!(cluster, read(&camel, Unknown::Refused).unwrap());
    assert_eq!(cluster, read(&snake, Unknown::Refused).unwrap());
    assert_eq!(cluster.connect_timeout.unwrap().nanos, 250_000_000);
    assert_eq!(cluster.per_connection_buffer_limit_bytes, Some(UInt32Value { value: 32_768 }));
}

#[test]
fn reports_every_fault_at_its_path() {
    check(
        CLUSTER,
        json!({
            "name": 5, "conect_timeout": "1s", "connect_timeout": "5 seconds", "lb_policy": "RONDOM",
            "load_assignment": {"endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"socket_address":
                {"address": "a", "port_value": 4294967296_u64}}}}]}]},
            "per_connection_buffer_limit_bytes": -1, "respect_dns_ttl": "yes", "filters": {},
        }),
        &[
            "conect_timeout: unknown field `conect_timeout` of `envoy.config.cluster.v3.Cluster`: did you mean \
             `connect_timeout`?",
            "connect_timeout: expected a duration in seconds such as `1.5s`, found `5 seconds`",
            "filters: expected a list, found a mapping",
            "lb_policy: unknown value `RONDOM` of `envoy.config.cluster.v3.Cluster.LbPolicy`: did you mean `RANDOM`?",
            "load_assignment.endpoints[0].lb_endpoints[0].endpoint.address.socket_address.port_value: expected a whole \
             number from 0 to 4294967295, found `4294967296`",
            "name: expected a string, found a number: put it in quotes",
            "per_connection_buffer_limit_bytes: expected a whole number from 0 to 4294967295, found `-1`",
            "respect_dns_ttl: expected `true` or `false`, found a string",
        ],
    );
}

#[test]
fn reports_faults_inside_any_at_any_depth() {
    let manager =
        "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
    let filters = json!([
        {"name": "a", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Routr"}},
        {"name": "b", "typed_config": {"dynamic_stats": true}},
        {"name": "c", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
            "dynamic_stat": true}},
        {"name": "d", "typed_config": {"@type": "type.googleapis.com/google.protobuf.StringValue", "vlue": "x"}},
    ]);
    let chains = json!([{"filters": [{"typed_config": {"@type": manager, "http_filters": filters}}]}]);
    let place = "filter_chains[0].filters[0].typed_config.http_filters";
    check(
        "envoy.config.listener.v3.Listener",
        json!({"filter_chains": chains}),
        &[
            &format!(
                "{place}[0].typed_config[\"@type\"]: unknown type \
                 `type.googleapis.com/envoy.extensions.filters.http.router.v3.Routr`: did you mean \
                 `type.googleapis.com/envoy.extensions.filters.http.router.v3.Router`?"
            ),
            &format!("{place}[1].typed_config: missing required field `@type`"),
            &format!(
                "{place}[2].typed_config.dynamic_stat: unknown field `dynamic_stat` of \
                 `envoy.extensions.filters.http.router.v3.Router`: did you mean `dynamic_stats`?"
            ),
            &format!("{place}[3].typed_config.vlue: unknown field `vlue`: did you mean `value`?"),
            &format!("{place}[3].typed_config: missing required field `value`"),
        ],
    );
}

#[test]
fn refuses_two_of_one_choice_and_one_field_twice() {
    check(
        CLUSTER,
        json!({"type": "STATIC", "cluster_type": {"name": "x"}, "connectTimeout": "1s", "connect_timeout": "1s"}),
        &[
            "connect_timeout: `connectTimeout` and `connect_timeout` are the same field",
            "type: only one of `cluster_type` and `type` can be set",
        ],
    );
}

#[test]
fn wants_a_mapping_with_a_type() {
    for (json, expect) in [
        (json!([]), "expected a mapping with `@type`, found a list"),
        (json!({"name": "a"}), "missing required field `@type`"),
        (json!({"@type": 1}), "[\"@type\"]: expected a string, found a number"),
    ] {
        assert_eq!(read_any(&json, Unknown::Refused).unwrap_err().to_string(), expect);
    }
}

#[test]
fn ignores_what_a_newer_peer_says_if_told_so() {
    let json = json!({"node": {"id": "a", "future": {"x": 1}}, "resource_names": ["x"], "more": 1});
    let request: DiscoveryRequest = read(&json, Unknown::Ignored).unwrap();
    assert_eq!(request.node.unwrap().id, "a");
    assert!(read::<DiscoveryRequest>(&json, Unknown::Refused).is_err());
}

#[test]
fn reads_structs_and_bytes() {
    let metadata = json!({"tags": {"a": [1, "x", true, null, {"b": 0.5}]}, "mesh": "m"});
    let node: Node = read(&json!({"id": "a", "metadata": metadata}), Unknown::Refused).unwrap();
    let type_url = Node::type_url();
    let written = write(&Any { type_url, value: node.encode_to_vec() }).unwrap();
    assert_eq!(written["metadata"], json!({"tags": {"a": [1.0, "x", true, null, {"b": 0.5}]}, "mesh": "m"}));
    let bytes = |text: &str| json!({"@type": "type.googleapis.com/google.protobuf.BytesValue", "value": text});
    for text in ["+/8=", "-_8=", "-_8"] {
        let any = read_any(&bytes(text), Unknown::Refused).unwrap();
        assert_eq!(write(&any).unwrap(), bytes("+/8="));
    }
    let wrong = read_any(&bytes("secret!"), Unknown::Refused).unwrap_err().to_string();
    assert_eq!(wrong, "value: expected bytes in base64");
}

#[test]
fn has_the_same_bytes_whatever_the_order_of_maps() {
    let keys: Vec<String> = (0..50).map(|n| format!("k{n}")).collect();
    let text = |keys: Vec<&String>| {
        let entries: Vec<_> = keys.iter().map(|key| format!("\"{key}\": {{\"x\": 1}}")).collect();
        format!("{{\"metadata\": {{\"filter_metadata\": {{{}}}}}}}", entries.join(", "))
    };
    let bytes = |keys| {
        let mut json: Json = serde_json::from_str(&text(keys)).unwrap();
        json["@type"] = Listener::type_url().into();
        read_any(&json, Unknown::Refused).unwrap().value
    };
    assert_eq!(bytes(keys.iter().collect()), bytes(keys.iter().rev().collect()));
}

/// A message with a value in every field, down to `depth`. Of each oneof, the field with the number `turn`.
fn full(message: &MessageDescriptor, turn: usize, depth: usize) -> DynamicMessage {
    let mut full = DynamicMessage::new(message.clone());
    match message.full_name() {
        "google.protobuf.Any" => {
            full.set_field_by_name("type_url", Value::String("type.googleapis.com/google.protobuf.Duration".into()));
            let duration = prost_reflect::prost_types::Duration { seconds: -3, nanos: -500_000_000 };
            full.set_field_by_name("value", Value::Bytes(duration.encode_to_vec().into()));
            return full;
        }
        "google.protobuf.Value" => full.set_field_by_name("string_value", Value::String("x".to_owned())),
        // One hour and half a second after 1970.
        "google.protobuf.Timestamp" | "google.protobuf.Duration" => {
            full.set_field_by_name("seconds", Value::I64(3_600));
            full.set_field_by_name("nanos", Value::I32(500_000_000));
        }
        _ => {
            for field in message.fields() {
                let mut choice =
                    field.containing_oneof().into_iter().flat_map(|oneof| oneof.fields().collect::<Vec<_>>());
                let last = choice.clone().count().saturating_sub(1);
                if choice.position(|member| member == field).is_none_or(|place| place == turn.min(last))
                    && let Some(value) = sample(&field, turn, depth)
                {
                    full.set_field(&field, value);
                }
            }
        }
    }
    full
}

fn sample(field: &FieldDescriptor, turn: usize, depth: usize) -> Option<Value> {
    if field.is_map() {
        let Kind::Message(entry) = field.kind() else { return None };
        let key = match scalar(&entry.map_entry_key_field().kind(), turn, depth)? {
            Value::String(text) => MapKey::String(text),
            Value::U32(number) => MapKey::U32(number),
            Value::U64(number) => MapKey::U64(number),
            Value::I32(number) => MapKey::I32(number),
            Value::I64(number) => MapKey::I64(number),
            other => panic!("a key {other:?}"),
        };
        return Some(Value::Map([(key, scalar(&entry.map_entry_value_field().kind(), turn, depth)?)].into()));
    }
    let value = scalar(&field.kind(), turn, depth)?;
    Some(if field.cardinality() == Cardinality::Repeated { Value::List(vec![value.clone(), value]) } else { value })
}

fn scalar(kind: &Kind, turn: usize, depth: usize) -> Option<Value> {
    Some(match kind {
        Kind::Double => Value::F64(-0.25),
        Kind::Float => Value::F32(1.5),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(-7),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(i64::MIN),
        Kind::Uint32 | Kind::Fixed32 => Value::U32(u32::MAX),
        Kind::Uint64 | Kind::Fixed64 => Value::U64(u64::MAX),
        Kind::Bool => Value::Bool(true),
        Kind::String => Value::String("é".to_owned()),
        Kind::Bytes => Value::Bytes(vec![0, 255].into()),
        // Zero would be omitted as the default.
        Kind::Enum(values) => {
            Value::EnumNumber(values.values().map(|value| value.number()).find(|number| *number != 0)?)
        }
        Kind::Message(_) if depth == 0 => return None,
        Kind::Message(message) => Value::Message(full(message, turn, depth - 1)),
    })
}

#[test]
fn reads_what_is_written_of_every_message() {
    let mut messages = 0;
    for message in descriptors::all().filter(|message| !message.is_map_entry()) {
        for turn in 0..4 {
            let message = full(&message, turn, 2);
            let type_url = format!("type.googleapis.com/{}", message.descriptor().full_name());
            let json = write_dynamic(&type_url, &message).unwrap();
            let read = read_any(&json, Unknown::Refused).unwrap_or_else(|error| panic!("{type_url}: {error}: {json}"));
            assert_eq!(read.type_url, type_url);
            // Not `assert_eq`, since `Debug` of a message shows its descriptor, which is recursive.
            assert!(dynamic(&read).unwrap() == message, "{json}");
        }
        messages += 1;
    }
    assert!(messages > 1_000, "only {messages} messages");
}

/// Visits the values in some JSON, starting with the root.
fn parts<'j>(json: &'j mut Json, place: usize, seen: &mut usize) -> Option<&'j mut Json> {
    if *seen == place {
        return Some(json);
    }
    *seen += 1;
    match json {
        Json::Array(items) => items.iter_mut().find_map(|item| parts(item, place, seen)),
        Json::Object(entries) => entries.values_mut().find_map(|value| parts(value, place, seen)),
        _ => None,
    }
}

fn size(json: &Json) -> usize {
    1 + match json {
        Json::Array(items) => items.iter().map(size).sum(),
        Json::Object(entries) => entries.values().map(size).sum(),
        _ => 0,
    }
}

proptest! {
    /// Any value anywhere in a message is either refused, or read as the reference reads it.
    #[test]
    fn survives_anything_anywhere(message: Index, turn in 0..4_usize, place: Index, strange in 0..15_usize) {
        let all: Vec<_> = descriptors::all().filter(|message| !message.is_map_entry()).collect();
        let message = full(message.get(&all), turn, 2);
        let descriptor = message.descriptor();
        let type_url = format!("type.googleapis.com/{}", descriptor.full_name());
        let mut json = write_dynamic(&type_url, &message).unwrap();
        let strange = [
            Json::Null, json!(true), json!(-1), json!(0), json!(1e300), json!(0.5), json!(u64::MAX), json!(""), json!("x"), json!("7"),
            json!([]), json!([null]), json!({}), json!({"x": 1}), json!({"@type": "x"}),
        ][strange].clone();
        let place = place.index(size(&json));
        *parts(&mut json, place, &mut 0).unwrap() = strange;
        if let Ok(read) = read_any(&json, Unknown::Refused) && !read.type_url.is_empty() {
            let ours = dynamic(&read).unwrap();
            let any = descriptors::message("google.protobuf.Any").unwrap();
            if let Ok(theirs) = DynamicMessage::deserialize(any, &json) {
                let theirs: Any = theirs.transcode_to().unwrap();
                prop_assert!(dynamic(&theirs).unwrap() == ours, "{}", json);
            }
        }
    }
}

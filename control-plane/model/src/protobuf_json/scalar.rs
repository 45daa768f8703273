//! Reads numbers, strings, bytes and enums: the payload of one value.

use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use postern_base::diagnostic::{Path, quote, suggestion};
use prost_reflect::{EnumDescriptor, Kind};
use serde_json::Value as Json;

use super::{
    Unknown,
    reader::{Reader, describe},
    wire,
};

/// Padding is optional. Base64url is translated to this alphabet first.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The payload of a value that is not a message. `None` if it is invalid, or is to be omitted.
pub(super) fn read(reader: &mut Reader, kind: &Kind, json: &Json, path: &Path<'_>) -> Option<Vec<u8>> {
    match kind {
        Kind::Double => Some(float(reader, json, path)?.to_le_bytes().to_vec()),
        Kind::Float => single(reader, json, path).map(|number| number.to_le_bytes().to_vec()),
        Kind::Bool => match json {
            Json::Bool(value) => Some(wire::varint((*value).into())),
            _ => {
                reader.expected("`true` or `false`", json, path);
                None
            }
        },
        Kind::String => Some(wire::delimited(string(reader, json, path)?.as_bytes())),
        Kind::Bytes => Some(wire::delimited(&bytes(reader, json, path)?)),
        Kind::Enum(values) => enumeration(reader, values, json, path),
        _ => {
            let (least, greatest) = range(kind);
            Some(encode(kind, whole(reader, json, least, greatest, path)?))
        }
    }
}

/// The payload of a map key, which is always a string in JSON.
pub(super) fn map_key(reader: &mut Reader, kind: &Kind, key: &str, path: &Path<'_>) -> Option<Vec<u8>> {
    match (kind, key) {
        (Kind::String, _) => Some(wire::delimited(key.as_bytes())),
        (Kind::Bool, "true" | "false") => Some(wire::varint((key == "true").into())),
        (Kind::Bool, _) => {
            reader.fault(path, format!("expected `true` or `false` as key, found {}", quote(key)));
            None
        }
        _ => read(reader, kind, &Json::from(key), path),
    }
}

/// The smallest and the largest value of an integer type.
fn range(kind: &Kind) -> (i128, i128) {
    match kind {
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => (i32::MIN.into(), i32::MAX.into()),
        Kind::Uint32 | Kind::Fixed32 => (0, u32::MAX.into()),
        Kind::Uint64 | Kind::Fixed64 => (0, u64::MAX.into()),
        _ => (i64::MIN.into(), i64::MAX.into()),
    }
}

/// The payload of an integer. It must be in the range of its type.
fn encode(kind: &Kind, number: i128) -> Vec<u8> {
    // In two's complement, the low bytes of the 128-bit integer are the 64-bit integer.
    let low = u64::from_le_bytes(first_bytes(number));
    match kind {
        Kind::Sint32 | Kind::Sint64 => wire::varint((low << 1) ^ if number < 0 { u64::MAX } else { 0 }),
        Kind::Fixed32 | Kind::Sfixed32 => first_bytes::<4>(number).to_vec(),
        Kind::Fixed64 | Kind::Sfixed64 => low.to_le_bytes().to_vec(),
        _ => wire::varint(low),
    }
}

fn first_bytes<const N: usize>(number: i128) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.iter_mut().zip(number.to_le_bytes()).for_each(|(to, from)| *to = from);
    bytes
}

/// Reads an integer: `5`, `5.0`, or `"5"`, which is the form for 64 bits.
fn whole(reader: &mut Reader, json: &Json, least: i128, greatest: i128, path: &Path<'_>) -> Option<i128> {
    let (number, written) = match json {
        Json::Number(number) => {
            let integer = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
            (integer.or_else(|| integral(number.as_f64()?)), number.to_string())
        }
        Json::String(text) => {
            (text.parse().ok().or_else(|| integral(text.parse().ok()?)).filter(|_| is_numeric(text)), text.clone())
        }
        _ => {
            reader.expected("a whole number", json, path);
            return None;
        }
    };
    let fits = number.filter(|number| (least..=greatest).contains(number));
    if fits.is_none() {
        reader.fault(path, format!("expected a whole number from {least} to {greatest}, found {}", quote(&written)));
    }
    fits
}

/// The integer with this value. Below 2⁵³, every integer is exact.
fn integral(number: f64) -> Option<i128> {
    (number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0).then_some(number as i128)
}

/// Whether a text is a JSON number. Rust's parser also accepts `inf`, `nan` and a leading `+`.
fn is_numeric(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_digit() || first == '-')
        && text.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-'))
}

fn float(reader: &mut Reader, json: &Json, path: &Path<'_>) -> Option<f64> {
    let number = match json {
        Json::Number(number) => number.as_f64(),
        Json::String(text) => match text.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            text => text.parse().ok().filter(|number: &f64| number.is_finite() && is_numeric(text)),
        },
        _ => None,
    };
    if number.is_none() {
        reader.expected("a number", json, path);
    }
    number
}

fn single(reader: &mut Reader, json: &Json, path: &Path<'_>) -> Option<f32> {
    let number = float(reader, json, path)?;
    let single = number as f32;
    if number.is_finite() && !single.is_finite() {
        reader.fault(path, format!("expected a number of single precision, found {}", quote(&number.to_string())));
        return None;
    }
    Some(single)
}

fn string<'j>(reader: &mut Reader, json: &'j Json, path: &Path<'_>) -> Option<&'j str> {
    match json {
        Json::String(text) => return Some(text),
        Json::Bool(_) | Json::Number(_) => {
            reader.fault(path, format!("expected a string, found {}: put it in quotes", describe(json)))
        }
        _ => reader.expected("a string", json, path),
    }
    None
}

fn bytes(reader: &mut Reader, json: &Json, path: &Path<'_>) -> Option<Vec<u8>> {
    let text = string(reader, json, path)?.replace('-', "+").replace('_', "/");
    let decoded = BASE64.decode(text).ok();
    if decoded.is_none() {
        // The message does not repeat the value, since it may be a key.
        reader.fault(path, "expected bytes in base64");
    }
    decoded
}

/// Reads an enum value by its name or number.
fn enumeration(reader: &mut Reader, values: &EnumDescriptor, json: &Json, path: &Path<'_>) -> Option<Vec<u8>> {
    // The only enum with a special JSON form.
    if values.full_name() == "google.protobuf.NullValue" && json.is_null() {
        return Some(wire::varint(0));
    }
    let number = match json {
        Json::String(name) => {
            let value = values.get_value_by_name(name).map(|value| value.number());
            if value.is_none() && reader.unknown == Unknown::Refused {
                let names: Vec<_> = values.values().map(|value| value.name().to_owned()).collect();
                let near = suggestion(name, names.iter().map(String::as_str));
                reader.fault(path, format!("unknown value {} of `{}`{near}", quote(name), values.full_name()));
            }
            value?
        }
        Json::Number(_) => {
            let number = whole(reader, json, i32::MIN.into(), i32::MAX.into(), path)?;
            let number = i32::try_from(number).ok()?;
            if values.get_value(number).is_none() && reader.unknown == Unknown::Refused {
                reader.fault(path, format!("unknown value `{number}` of `{}`", values.full_name()));
            }
            number
        }
        _ => {
            reader.expected("the name of a value", json, path);
            return None;
        }
    };
    Some(encode(&Kind::Int32, number.into()))
}

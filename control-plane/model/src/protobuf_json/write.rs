//! Writes messages as JSON.

use envoy_types::pb::google::protobuf::Any;
use prost::DecodeError;
use prost_reflect::{DynamicMessage, ReflectMessage};
use serde_json::Value as Json;

use super::{descriptors, message::own_form};

/// Why a message cannot be written as JSON.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Its type is unknown.
    #[error("{0}")]
    Type(String),
    /// It cannot be decoded as its type.
    #[error("a message of type `{type_url}` cannot be decoded: {error}")]
    Decode {
        /// The type.
        type_url: String,
        /// The cause.
        error: DecodeError,
    },
    /// A part of it has no JSON form, most likely an `Any` of unknown type.
    #[error("a message of type `{type_url}` cannot be written as JSON: {error}")]
    Json {
        /// The type of the whole message.
        type_url: String,
        /// The cause.
        error: serde_json::Error,
    },
}

/// The message as JSON, with its type in `@type`. Keys are sorted, so that equal messages give equal text.
pub fn write(any: &Any) -> Result<Json, WriteError> {
    write_dynamic(&any.type_url, &dynamic(any)?)
}

/// Decodes a message by the descriptor of its type.
pub fn dynamic(any: &Any) -> Result<DynamicMessage, WriteError> {
    let message = descriptors::by_type_url(&any.type_url).map_err(WriteError::Type)?;
    DynamicMessage::decode(message, any.value.as_slice())
        .map_err(|error| WriteError::Decode { type_url: any.type_url.clone(), error })
}

/// Like [`write`], for a decoded message whose type has no special JSON form.
pub fn write_dynamic(type_url: &str, message: &DynamicMessage) -> Result<Json, WriteError> {
    let failed = |error| WriteError::Json { type_url: type_url.to_owned(), error };
    let json = serde_json::to_value(message).map_err(failed)?;
    let mut entries = match json {
        Json::Object(entries) if own_form(message.descriptor().full_name()).is_none() => entries,
        value => serde_json::Map::from_iter([("value".to_owned(), value)]),
    };
    entries.insert("@type".to_owned(), Json::from(type_url));
    Ok(Json::Object(entries))
}

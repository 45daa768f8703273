//! Messages to JSON.

use envoy_types::pb::google::protobuf::Any;
use prost::DecodeError;
use prost_reflect::{DynamicMessage, ReflectMessage};
use serde_json::Value as Json;

use super::{descriptors, message::own_form};

/// Why a message cannot be shown as JSON.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Its type is not known.
    #[error("{0}")]
    Type(String),
    /// It is no message of its type.
    #[error("a message of type `{type_url}` cannot be decoded: {error}")]
    Decode {
        /// The type.
        type_url: String,
        /// What is wrong.
        error: DecodeError,
    },
    /// Something in it has no JSON: most likely an `Any` of a type that is not known.
    #[error("a message of type `{type_url}` cannot be written as JSON: {error}")]
    Json {
        /// The type of the whole.
        type_url: String,
        /// What is wrong.
        error: serde_json::Error,
    },
}

/// A message as JSON, with its type in `@type`. Objects are in the order of their keys: equal messages are equal text.
pub fn write(any: &Any) -> Result<Json, WriteError> {
    write_dynamic(&any.type_url, &dynamic(any)?)
}

/// A message by its descriptor.
pub fn dynamic(any: &Any) -> Result<DynamicMessage, WriteError> {
    let message = descriptors::by_type_url(&any.type_url).map_err(WriteError::Type)?;
    DynamicMessage::decode(message, any.value.as_slice())
        .map_err(|error| WriteError::Decode { type_url: any.type_url.clone(), error })
}

/// The same as [`write`], of a message that is decoded already and has no JSON form of its own.
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

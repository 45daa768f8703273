//! The values that expressions compute with, and maps of them.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    key::Key,
    time::{Duration, Timestamp},
};

/// A CEL value. Cloning one is cheap: what is large is shared.
///
/// `==` asks for the same type and value, which is not CEL's `==`: there, `1 == 1u` and `1 == 1.0`.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// `-1`.
    Int(i64),
    /// `1u`.
    Uint(u64),
    /// `1.5`.
    Double(f64),
    /// `'text'`.
    String(Arc<str>),
    /// `b'bytes'`.
    Bytes(Arc<[u8]>),
    /// `[1, 'a']`.
    List(Arc<[Value]>),
    /// `{'a': 1}`.
    Map(Arc<Map>),
    /// `timestamp('2000-01-01T00:00:00Z')`.
    Timestamp(Timestamp),
    /// `duration('1s')`.
    Duration(Duration),
}

impl Value {
    /// Its type.
    pub const fn value_type(&self) -> Type {
        match self {
            Self::Null => Type::Null,
            Self::Bool(_) => Type::Bool,
            Self::Int(_) => Type::Int,
            Self::Uint(_) => Type::Uint,
            Self::Double(_) => Type::Double,
            Self::String(_) => Type::String,
            Self::Bytes(_) => Type::Bytes,
            Self::List(_) => Type::List,
            Self::Map(_) => Type::Map,
            Self::Timestamp(_) => Type::Timestamp,
            Self::Duration(_) => Type::Duration,
        }
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Uint(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Double(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::String(value.into())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::String(value.into())
    }
}

impl From<&[u8]> for Value {
    fn from(value: &[u8]) -> Self {
        Self::Bytes(value.into())
    }
}

impl From<Vec<u8>> for Value {
    fn from(value: Vec<u8>) -> Self {
        Self::Bytes(value.into())
    }
}

impl From<Vec<Value>> for Value {
    fn from(value: Vec<Value>) -> Self {
        Self::List(value.into())
    }
}

impl From<Map> for Value {
    fn from(value: Map) -> Self {
        Self::Map(Arc::new(value))
    }
}

/// A map, in the order of its keys.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Map(BTreeMap<Key, Value>);

impl Map {
    /// Adds an entry unless its key is there already; whether it was added.
    #[must_use]
    pub fn insert(&mut self, key: Key, value: Value) -> bool {
        let free = !self.0.contains_key(&key);
        if free {
            self.0.insert(key, value);
        }
        free
    }

    /// The value of this key.
    pub fn get(&self, key: &Key) -> Option<&Value> {
        self.0.get(key)
    }

    /// Every entry, in the order of keys.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Value)> {
        self.0.iter()
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Of equal keys, the last one wins.
impl FromIterator<(Key, Value)> for Map {
    fn from_iter<I: IntoIterator<Item = (Key, Value)>>(entries: I) -> Self {
        Self::from(entries.into_iter().collect::<Vec<_>>())
    }
}

/// Of equal keys, the last one wins.
impl From<Vec<(Key, Value)>> for Map {
    /// One function for all iterators: `BTreeMap` brings a stable sort for each type of iterator that it is collected
    /// from.
    #[inline(never)]
    fn from(entries: Vec<(Key, Value)>) -> Self {
        Self(entries.into_iter().collect())
    }
}

impl Key {
    /// The key that a literal gives; `None` if its type cannot be one (langdef, "Aggregate Values").
    pub fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Bool(value) => Some(Self::Bool(*value)),
            Value::Int(value) => Some(Self::Int(*value)),
            Value::Uint(value) => Some(Self::Uint(*value)),
            Value::String(value) => Some(Self::String(Arc::clone(value))),
            _ => None,
        }
    }

    /// The key as a value.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(value) => Value::Int(*value),
            Self::Uint(value) => Value::Uint(*value),
            Self::String(value) => Value::String(Arc::clone(value)),
        }
    }
}

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// The type of `null`.
    Null,
    /// Truth values.
    Bool,
    /// Signed integers of 64 bits.
    Int,
    /// Unsigned integers of 64 bits.
    Uint,
    /// IEEE 754 numbers of 64 bits.
    Double,
    /// Text.
    String,
    /// Bytes.
    Bytes,
    /// Lists.
    List,
    /// Maps.
    Map,
    /// Points in time.
    Timestamp,
    /// Spans of time.
    Duration,
}

impl Type {
    /// Its name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::List => "list",
            Self::Map => "map",
            Self::Timestamp => "timestamp",
            Self::Duration => "duration",
        }
    }
}

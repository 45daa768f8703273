//! Maps and their keys. Keys are equal as CEL's `==` has it: `1` and `1u` are one key.

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc};

use super::value::Value;

/// A map, in the order of its keys.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Map(BTreeMap<Key, Value>);

/// What a map can be asked by.
#[derive(Debug, Clone)]
pub enum Key {
    /// A truth value.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// Text.
    String(Arc<str>),
}

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

/// The last of equal keys wins.
impl FromIterator<(Key, Value)> for Map {
    fn from_iter<I: IntoIterator<Item = (Key, Value)>>(entries: I) -> Self {
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

    /// The key that equals a value. A double without a fraction finds an integer.
    pub(super) fn equal_to(value: &Value) -> Option<Self> {
        match value {
            Value::Double(value) => super::number::integer(*value),
            _ => Self::from_value(value),
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

    fn rank(&self) -> u8 {
        match self {
            Self::Bool(_) => 0,
            Self::Int(_) | Self::Uint(_) => 1,
            Self::String(_) => 2,
        }
    }

    fn integer(&self) -> i128 {
        match self {
            Self::Int(value) => i128::from(*value),
            Self::Uint(value) => i128::from(*value),
            Self::Bool(value) => i128::from(*value),
            Self::String(_) => 0,
        }
    }
}

impl From<&str> for Key {
    fn from(value: &str) -> Self {
        Self::String(value.into())
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::String(one), Self::String(other)) => one.cmp(other),
            _ => (self.rank(), self.integer()).cmp(&(other.rank(), other.integer())),
        }
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key {}

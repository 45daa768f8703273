//! The keys of maps. They are equal as CEL's `==` has it: `1` and `1u` are one key.

use std::{cmp::Ordering, sync::Arc};

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

impl Key {
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

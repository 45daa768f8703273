//! `headers` of a route's `match`: conditions on a request's headers.

use serde::{Deserialize, Serialize};

/// A condition on one header.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HeaderMatch {
    /// The name, in any case.
    pub name: String,
    /// The condition on its value.
    #[serde(flatten)]
    pub condition: HeaderCondition,
}

/// A condition on the value of a header or a query parameter.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HeaderCondition {
    /// The value equals this text.
    Exact(String),
    /// Whether it is present.
    Present(bool),
    /// The whole value matches a regular expression.
    Regex(String),
}

//! `headers` of a route's `match`: what a request's headers must be like.

use serde::{Deserialize, Serialize};

/// What a header must be like.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HeaderMatch {
    /// The name, of any case.
    pub name: String,
    /// What is asked of it.
    #[serde(flatten)]
    pub condition: HeaderCondition,
}

/// What is asked of a header, a query parameter or a cookie.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HeaderCondition {
    /// It has this value.
    Exact(String),
    /// It is there, or is not.
    Present(bool),
    /// Its whole value fits a regular expression.
    Regex(String),
}

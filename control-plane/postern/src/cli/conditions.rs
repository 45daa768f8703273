//! The table of conditions.

use serde_json::Value;

use super::{
    client::{at, items, text},
    table::{Table, age},
};

/// A table of conditions, with each message that says more than its reason.
pub(super) fn table(conditions: &Value) -> Table<5> {
    let mut table = Table::new(["CONDITION", "NODE", "STATUS", "REASON", "AGE"]);
    for condition in items(conditions) {
        let node = at(condition, "/node").as_str().unwrap_or_default().to_owned();
        let since = age(at(condition, "/lastTransitionTime"));
        table.row([
            text(at(condition, "/type")),
            node,
            text(at(condition, "/status")),
            text(at(condition, "/reason")),
            since,
        ]);
        if at(condition, "/status") != "True" {
            table.note(text(at(condition, "/message")));
        }
    }
    table
}

/// The condition `Ready` of all nodes together.
pub(super) fn ready(conditions: &Value) -> &Value {
    let ready = |found: &&Value| at(found, "/type") == "Ready" && at(found, "/node").is_null();
    items(conditions).iter().find(ready).unwrap_or(&Value::Null)
}

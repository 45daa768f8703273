//! An edit of a header, as host calls.

use postern_engine::edits::Edit;

use crate::host::{self, HostError, Map};

/// Makes an edit of one header of a message.
#[inline]
pub(crate) fn apply(edit: &Edit, map: Map) -> Result<(), HostError> {
    if !edit.replace {
        return edit.values.iter().try_for_each(|value| host::add_header(map, &edit.name, value));
    }
    match edit.values.split_first() {
        None => host::remove_header(map, &edit.name),
        Some((first, rest)) => {
            host::replace_header(map, &edit.name, first)?;
            rest.iter().try_for_each(|value| host::add_header(map, &edit.name, value))
        }
    }
}

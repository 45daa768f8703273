//! Header edits: what steps change, merged as they come, and how a message looks with them.

use std::sync::Arc;

use crate::event::Headers;

/// What is to become of one header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The header's name, in lower case.
    pub name: Arc<str>,
    /// Whether the values that the message came with are dropped.
    pub replace: bool,
    /// The values to add after that.
    pub values: Vec<Arc<str>>,
}

/// At most one [`Edit`] a header: a later one wins over, or adds to, an earlier one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edits(Vec<Edit>);

impl Edits {
    /// The edits in the order in which their headers were first touched.
    pub fn iter(&self) -> impl Iterator<Item = &Edit> {
        self.0.iter()
    }

    fn find(&self, name: &str) -> Option<&Edit> {
        self.0.iter().find(|edit| &*edit.name == name)
    }

    /// Puts `edit` in the place of the one for the same header, if there is one.
    fn put(&mut self, edit: Edit) {
        match self.0.iter_mut().find(|known| known.name == edit.name) {
            Some(known) => *known = edit,
            None => self.0.push(edit),
        }
    }

    fn add(&mut self, name: &Arc<str>, value: &Arc<str>) {
        match self.0.iter_mut().find(|known| known.name == *name) {
            Some(known) => known.values.push(Arc::clone(value)),
            None => self.0.push(Edit { name: Arc::clone(name), replace: false, values: vec![Arc::clone(value)] }),
        }
    }
}

/// A message's headers as the next step sees them: as they came, with the edits of the steps before.
#[derive(Debug)]
pub(crate) struct EditedHeaders<'a> {
    came: &'a Headers,
    edits: Edits,
}

impl<'a> EditedHeaders<'a> {
    pub(crate) fn new(came: &'a Headers) -> Self {
        Self { came, edits: Edits::default() }
    }

    /// The values of one header, in order.
    pub(crate) fn values(&self, name: &str) -> Vec<&[u8]> {
        let edit = self.edits.find(name);
        let kept = edit.is_none_or(|edit| !edit.replace);
        let came = kept.then(|| self.came.values(name)).into_iter().flatten();
        let added = edit.into_iter().flat_map(|edit| edit.values.iter().map(|value| value.as_bytes()));
        came.chain(added).collect()
    }

    pub(crate) fn set(&mut self, name: &Arc<str>, value: &Arc<str>) {
        self.edits.put(Edit { name: Arc::clone(name), replace: true, values: vec![Arc::clone(value)] });
    }

    pub(crate) fn add(&mut self, name: &Arc<str>, value: &Arc<str>) {
        self.edits.add(name, value);
    }

    pub(crate) fn remove(&mut self, name: &Arc<str>) {
        self.edits.put(Edit { name: Arc::clone(name), replace: true, values: Vec::new() });
    }

    pub(crate) fn into_edits(self) -> Edits {
        self.edits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(act: impl FnOnce(&mut EditedHeaders<'_>), expect: &[&str]) {
        let came: Headers = [("x", "came"), ("x", "twice"), ("y", "other")].into_iter().collect();
        let mut headers = EditedHeaders::new(&came);
        act(&mut headers);
        let seen: Vec<_> = headers.values("x").into_iter().map(|value| str::from_utf8(value).unwrap()).collect();
        assert_eq!(seen, expect);
    }

    #[test]
    fn shows_what_came_when_nothing_was_edited() {
        check(|_| {}, &["came", "twice"]);
    }

    #[test]
    fn lets_the_last_set_win() {
        check(
            |headers| {
                headers.set(&"x".into(), &"first".into());
                headers.set(&"x".into(), &"last".into());
            },
            &["last"],
        );
    }

    #[test]
    fn drops_earlier_sets_on_removal() {
        check(
            |headers| {
                headers.set(&"x".into(), &"gone".into());
                headers.remove(&"x".into());
            },
            &[],
        );
    }

    #[test]
    fn adds_beside_what_came() {
        check(|headers| headers.add(&"x".into(), &"more".into()), &["came", "twice", "more"]);
    }

    #[test]
    fn adds_after_a_removal() {
        check(
            |headers| {
                headers.remove(&"x".into());
                headers.add(&"x".into(), &"only".into());
            },
            &["only"],
        );
    }
}

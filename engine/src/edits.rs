//! Edits of headers and body: what steps change, merged as it comes, and how a message looks after that.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use crate::{
    event::Headers,
    header::{Name, Removable, Value},
    rare::Rare,
};

/// The edit of one header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The header's name, in lower case.
    pub name: Arc<str>,
    /// Whether the message's own values are dropped.
    pub replace: bool,
    /// The values to add after that.
    pub values: SmallVec<[Arc<str>; 1]>,
    /// The step that edited it last, by its place in the chain.
    step: usize,
}

/// Instead of a step: the header was stripped because only steps may set it, and no step has touched it since.
const STRIPPED: usize = usize::MAX;

/// The values of one header.
pub(crate) type Values<'a> = SmallVec<[&'a [u8]; 1]>;

/// How often a header is there that should be there once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Only<'a> {
    None,
    One(&'a [u8]),
    Several,
}

/// How much of a body may pass. The host counts the bytes, since nobody else sees all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowance {
    /// The most bytes that may pass.
    pub most: u64,
    /// The step that set the limit.
    pub(crate) step: Arc<str>,
    pub(crate) consumer: Option<Arc<str>>,
}

/// The edits of a message: at most one [`Edit`] for each header, and at most one body. A later edit of a header
/// replaces the earlier one or adds to it.
///
/// Every run has several of these and moves them around, mostly empty, so rarely used edits are boxed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edits {
    headers: SmallVec<[Edit; 2]>,
    rare: Rare<RareEdits>,
    conflicts: u32,
}

/// Edits that few chains make.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct RareEdits {
    body: Option<(Vec<u8>, usize)>,
    path: Option<Arc<str>>,
    host: Option<(Arc<str>, usize)>,
    allowance: Option<Allowance>,
}

impl Edits {
    /// No edits.
    pub(crate) const fn none() -> Self {
        Self { headers: SmallVec::new_const(), rare: Rare::none(), conflicts: 0 }
    }

    /// The header edits in the order in which their headers were first touched.
    #[inline]
    pub fn headers(&self) -> impl Iterator<Item = &Edit> {
        self.headers.iter()
    }

    /// The body that the message gets instead of its own.
    #[inline]
    pub fn body(&self) -> Option<&[u8]> {
        self.rare.get()?.body.as_ref().map(|(body, _)| body.as_slice())
    }

    /// The path that the upstream gets instead of the request's, without a query.
    #[inline]
    pub fn path(&self) -> Option<&str> {
        self.rare.get()?.path.as_deref()
    }

    /// The host that the upstream gets instead of the request's.
    #[inline]
    pub fn host(&self) -> Option<&str> {
        self.rare.get()?.host.as_ref().map(|(host, _)| &**host)
    }

    /// Sets the path for the upstream. A later path is made from the earlier one, so this is never a conflict.
    pub(crate) fn set_path(&mut self, path: &str) {
        self.rare().path = Some(path.into());
    }

    /// Sets the host for the upstream.
    pub(crate) fn set_host(&mut self, step: usize, host: &str) {
        let before = self.rare().host.replace((host.into(), step));
        self.count_conflict(before.is_some_and(|(_, other)| other != step));
    }

    /// The limit on the body; `None` if there is none.
    #[inline]
    pub fn allowance(&self) -> Option<&Allowance> {
        self.rare.get()?.allowance.as_ref()
    }

    /// Limits how much of the body may pass. Of several limits, the smallest holds.
    pub(crate) fn allow_body(&mut self, allowance: Allowance) {
        let known = &mut self.rare().allowance;
        if known.as_ref().is_none_or(|known| known.most > allowance.most) {
            *known = Some(allowance);
        }
    }

    /// Notes the consumer that sent the request.
    #[inline]
    pub(crate) fn belong_to(&mut self, consumer: Option<&Arc<str>>) {
        if let Some(allowance) = self.rare.get_mut().and_then(|rare| rare.allowance.as_mut()) {
            allowance.consumer = consumer.cloned();
        }
    }

    /// Whether there is nothing to change.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.headers.is_empty() && self.body().is_none()
    }

    /// How often a step overrode what another step had set.
    pub fn conflicts(&self) -> u32 {
        self.conflicts
    }

    /// The values that one header has after these edits, in order. `came` are the message's own headers.
    pub(crate) fn values<'a>(&'a self, came: &'a Headers, name: &str) -> Values<'a> {
        Self::values_with(self.headers.iter().find(|edit| &*edit.name == name), came, name)
    }

    /// Like [`Self::values`], but includes the caller's values of a header that was stripped. For steps that look for a
    /// credential in the request as it came, in a header that a later step replaces.
    pub(crate) fn sent<'a>(&'a self, came: &'a Headers, name: &str) -> Values<'a> {
        let edit = self.headers.iter().find(|edit| &*edit.name == name && edit.step != STRIPPED);
        Self::values_with(edit, came, name)
    }

    #[inline]
    fn values_with<'a>(edit: Option<&'a Edit>, came: &'a Headers, name: &str) -> Values<'a> {
        let mut values = Values::new();
        // One by one: there is mostly one, and to make room for several costs more than to find it.
        if edit.is_none_or(|edit| !edit.replace) {
            came.values(name).for_each(|value| values.push(value));
        }
        if let Some(edit) = edit {
            edit.values.iter().for_each(|value| values.push(value.as_bytes()));
        }
        values
    }

    /// The value of a header that should have one only, as [`Self::sent`] has it.
    #[inline]
    pub(crate) fn only<'a>(&'a self, came: &'a Headers, name: &str) -> Only<'a> {
        let edit = self.headers.iter().find(|edit| &*edit.name == name && edit.step != STRIPPED);
        let (kept, added) = match edit {
            None => (true, [].iter()),
            Some(edit) => (!edit.replace, edit.values.iter()),
        };
        let came = came.values(name).filter(|_| kept);
        let mut values = came.chain(added.map(|value| value.as_bytes()));
        match (values.next(), values.next()) {
            (None, _) => Only::None,
            (Some(value), None) => Only::One(value),
            (Some(_), Some(_)) => Only::Several,
        }
    }

    /// Sets a header in place of all values that it has.
    #[inline]
    pub(crate) fn set(&mut self, step: usize, name: &Name, value: &Value) {
        let (name, value) = (Arc::clone(name.get()), Arc::clone(value.get()));
        self.put(Edit { name, replace: true, values: smallvec![value], step });
    }

    /// Removes a header, and what earlier steps made of it.
    #[inline]
    pub(crate) fn remove(&mut self, step: usize, name: &impl Removable) {
        self.put(Edit { name: Arc::clone(name.name()), replace: true, values: SmallVec::new(), step });
    }

    /// Removes the caller's values of a header that only steps may set, unless a step has edited it already.
    pub(crate) fn strip(&mut self, name: &Name) {
        let name = name.get();
        if !self.headers.iter().any(|known| known.name == *name) {
            self.headers.push(Edit { name: Arc::clone(name), replace: true, values: SmallVec::new(), step: STRIPPED });
        }
    }

    /// Adds a value beside the ones that a header has.
    pub(crate) fn add(&mut self, step: usize, name: &Name, value: &Value) {
        let (name, value) = (name.get(), Arc::clone(value.get()));
        match self.headers.iter_mut().find(|known| known.name == *name) {
            Some(known) => {
                known.values.push(value);
                // What was stripped is now the step's.
                known.step = if known.step == STRIPPED { step } else { known.step };
            }
            None => self.headers.push(Edit { name: Arc::clone(name), replace: false, values: smallvec![value], step }),
        }
    }

    /// Replaces the body.
    pub(crate) fn set_body(&mut self, step: usize, body: Vec<u8>) {
        let before = self.rare().body.replace((body, step));
        self.count_conflict(before.is_some_and(|(_, other)| other != step));
    }

    fn rare(&mut self) -> &mut RareEdits {
        self.rare.make()
    }

    fn count_conflict(&mut self, is_one: bool) {
        self.conflicts = self.conflicts.saturating_add(u32::from(is_one));
    }

    #[inline]
    fn put(&mut self, edit: Edit) {
        match self.headers.iter_mut().find(|known| known.name == edit.name) {
            Some(known) => {
                let other = known.step != edit.step && known.step != STRIPPED;
                *known = edit;
                self.count_conflict(other);
            }
            None => self.headers.push(edit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value {
        Value::new(text).unwrap()
    }

    fn check(act: impl FnOnce(&mut Edits, &Name), expect: &[&str], conflicts: u32) {
        let came: Headers = [("x", "came"), ("x", "twice"), ("y", "other")].into_iter().collect();
        let mut edits = Edits::default();
        act(&mut edits, &Name::built_in("x"));
        let seen: Vec<_> = edits.values(&came, "x").into_iter().map(|value| str::from_utf8(value).unwrap()).collect();
        assert_eq!((seen.as_slice(), edits.conflicts()), (expect, conflicts));
    }

    #[test]
    fn shows_what_came_when_nothing_was_edited() {
        check(|_, _| {}, &["came", "twice"], 0);
    }

    #[test]
    fn lets_the_last_set_win_and_counts_the_conflict_of_two_steps() {
        let act = |steps: [usize; 2]| {
            move |edits: &mut Edits, name: &Name| {
                edits.set(steps[0], name, &value("first"));
                edits.set(steps[1], name, &value("last"));
            }
        };
        check(act([0, 1]), &["last"], 1);
        check(act([0, 0]), &["last"], 0);
    }

    #[test]
    fn drops_earlier_sets_on_removal() {
        check(
            |edits, name| {
                edits.set(0, name, &value("gone"));
                edits.remove(1, name);
            },
            &[],
            1,
        );
    }

    #[test]
    fn adds_beside_what_came_and_after_a_removal() {
        check(|edits, name| edits.add(0, name, &value("more")), &["came", "twice", "more"], 0);
        check(
            |edits, name| {
                edits.remove(0, name);
                edits.add(0, name, &value("only"));
            },
            &["only"],
            0,
        );
    }

    #[test]
    fn strips_what_came_until_a_step_says_something() {
        check(|edits, name| edits.strip(name), &[], 0);
        let act = |edits: &mut Edits, name: &Name| {
            edits.strip(name);
            edits.set(0, name, &value("first"));
            edits.strip(name);
        };
        check(act, &["first"], 0);
        let act = |edits: &mut Edits, name: &Name| {
            edits.strip(name);
            edits.add(0, name, &value("only"));
        };
        check(act, &["only"], 0);
    }

    #[test]
    fn shows_what_was_sent_in_a_stripped_header_to_those_who_look_for_it() {
        let came: Headers = [("x", "came")].into_iter().collect();
        let mut edits = Edits::default();
        edits.strip(&Name::built_in("x"));
        assert_eq!(
            (edits.sent(&came, "x").as_slice(), edits.only(&came, "x")),
            (&[&b"came"[..]][..], Only::One(b"came"))
        );
        edits.set(0, &Name::built_in("x"), &value("first"));
        assert_eq!(
            (edits.sent(&came, "x").as_slice(), edits.only(&came, "x")),
            (&[&b"first"[..]][..], Only::One(b"first"))
        );
    }

    #[test]
    fn lets_the_last_body_win() {
        let mut edits = Edits::default();
        edits.set_body(0, b"first".to_vec());
        edits.set_body(1, b"last".to_vec());
        assert_eq!((edits.body(), edits.conflicts()), (Some(&b"last"[..]), 1));
    }
}

//! What a part of a plan may refer to, and the small parts that many policies have.

use postern_proto::plan::v1 as wire;

use crate::Script;

/// How much of each a plan has.
#[derive(Debug, Clone, Copy)]
pub(in crate::plans) struct Scope {
    pub(in crate::plans) strings: usize,
    pub(in crate::plans) expressions: usize,
}

impl Scope {
    pub(in crate::plans) fn string(self, script: &mut Script<'_>) -> u32 {
        script.index(self.strings)
    }

    pub(in crate::plans) fn strings(self, script: &mut Script<'_>) -> Vec<u32> {
        indexes(script, self.strings)
    }

    /// An expression, or none.
    pub(in crate::plans) fn expression(self, script: &mut Script<'_>) -> u32 {
        script.index(self.expressions + 1)
    }

    pub(in crate::plans) fn pairs(self, script: &mut Script<'_>) -> Vec<wire::HeaderValue> {
        some(script, |script| wire::HeaderValue { name: self.string(script), value: self.string(script) })
    }

    pub(in crate::plans) fn answer(self, script: &mut Script<'_>) -> wire::Answer {
        let status = 200 + u32::from(script.byte());
        wire::Answer { status, headers: self.pairs(script), body: self.string(script) }
    }

    /// Some sources.
    pub(in crate::plans) fn source(self, script: &mut Script<'_>) -> wire::Source {
        wire::Source {
            mesh: self.string(script),
            service: script.flag().then(|| self.string(script)),
            tags: some(script, |script| wire::source::Tag { name: self.string(script), value: self.string(script) }),
        }
    }
}

/// Up to three indexes into so many.
pub(super) fn indexes(script: &mut Script<'_>, count: usize) -> Vec<u32> {
    (0..script.below(4)).map(|_| script.index(count)).collect()
}

/// None, one or two of something.
pub(super) fn some<T>(script: &mut Script<'_>, make: impl Fn(&mut Script<'_>) -> T) -> Vec<T> {
    (0..script.below(3)).map(|_| make(script)).collect()
}

/// A number of 32 bits, or none.
pub(super) fn bound(script: &mut Script<'_>) -> Option<u32> {
    script.flag().then(|| script.number() as u32)
}

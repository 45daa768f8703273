//! Matches by host and by the segments of their paths: a lookup does not take longer the more matches there are.
//!
//! The table of nodes is written by hand, since it is never changed once it is made: another hash map of the standard
//! library's kind takes some 2 KB of the filter.

use std::sync::Arc;

use postern_proto::plan::v1 as wire;

use super::spelling;
use crate::cel::Pattern;

/// What stands before the nodes behind hosts.
pub(super) const TOP: u32 = u32::MAX;

/// The nodes behind hosts, and behind these those of paths.
#[derive(Debug)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    /// The numbers of nodes, each at its hash or in one of the next places. Less than half are taken.
    table: Vec<Option<u32>>,
}

/// The segments of paths up to here.
#[derive(Debug)]
struct Node {
    /// The node before it, and the segment between them; any segment if `None`.
    before: u32,
    segment: Option<Box<[u8]>>,
    choices: Vec<Choice>,
}

/// A match at a place in the tree.
#[derive(Debug)]
pub(super) struct Choice {
    /// Whether more segments may follow.
    pub(super) is_start: bool,
    /// In place of segments, at the node of a host.
    pub(super) pattern: Option<Pattern>,
    /// The method; any if `None`.
    pub(super) method: Option<Arc<str>>,
    pub(super) rank: u32,
    pub(super) route: Arc<str>,
    pub(super) chain: Option<usize>,
}

impl Tree {
    /// An empty tree with room for these matches.
    pub(super) fn for_size(wire: &[wire::Match]) -> Self {
        let most = wire.iter().fold(1_usize, |most, wire| most.saturating_add(wire.segments.len()).saturating_add(1));
        Self { nodes: Vec::new(), table: vec![None; most.saturating_mul(2).next_power_of_two()] }
    }

    /// The place of a node in the table, or the free place where it would be.
    fn place(&self, before: u32, segment: Option<&[u8]>) -> usize {
        let mask = self.table.len().saturating_sub(1);
        // Callers choose what is looked up, and not what is in here: any hash will do (FNV-1a).
        let mut hash = before ^ 0x811c_9dc5;
        for byte in segment.unwrap_or(b"/") {
            hash = (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
        let mut place = usize::try_from(hash).unwrap_or_default() & mask;
        while let Some(node) = self.table.get(place).copied().flatten().and_then(|node| self.get(node)) {
            if node.before == before && node.segment.as_deref() == segment {
                break;
            }
            place = place.wrapping_add(1) & mask;
        }
        place
    }

    /// The node behind a segment, or behind any.
    pub(super) fn child(&self, before: u32, segment: Option<&[u8]>) -> Option<u32> {
        self.table.get(self.place(before, segment)).copied().flatten()
    }

    /// Like [`Self::child`]. The node is made if it is new.
    pub(super) fn behind(&mut self, before: u32, segment: Option<&[u8]>) -> u32 {
        let place = self.place(before, segment);
        let new = u32::try_from(self.nodes.len()).unwrap_or(TOP);
        let node = self.table.get_mut(place).map_or(new, |node| *node.get_or_insert(new));
        if node == new {
            self.nodes.push(Node { before, segment: segment.map(Into::into), choices: Vec::new() });
        }
        node
    }

    /// Puts a choice at a node.
    pub(super) fn put(&mut self, at: u32, choice: Choice) {
        if let Some(node) = usize::try_from(at).ok().and_then(|at| self.nodes.get_mut(at)) {
            node.choices.push(choice);
        }
    }

    /// Follows the segments of a path from all roots at once, and shows what may be chosen: what the path starts with, what
    /// it is, and all patterns.
    pub(super) fn walk<'t>(&'t self, roots: &[u32], path: &[u8], mut show: impl FnMut(&'t Choice)) {
        let mut reached = roots.to_vec();
        let mut segments = spelling::segments(path);
        loop {
            let segment = segments.next().map(spelling::unescaped);
            let mut next = Vec::new();
            for at in reached {
                for choice in self.get(at).into_iter().flat_map(|node| &node.choices) {
                    if segment.is_none() || choice.is_start || choice.pattern.is_some() {
                        show(choice);
                    }
                }
                if let Some(segment) = segment.as_deref() {
                    next.extend(self.child(at, Some(segment)));
                    next.extend(self.child(at, None).filter(|_| !segment.is_empty()));
                }
            }
            if next.is_empty() {
                return;
            }
            reached = next;
        }
    }

    fn get(&self, at: u32) -> Option<&Node> {
        self.nodes.get(usize::try_from(at).ok()?)
    }
}

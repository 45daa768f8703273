//! Random histories: whatever a client asked for, accepted and refused, in the end it has what is in force, and was
//! never sent twice what it refused.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use postern_compile::snapshot::ResourceType::{
    self, Cluster, Endpoints, ExtensionConfig, Listener, RouteConfiguration,
};
use postern_deliver::xds::{Offers, content::Variant, session::Response};

use crate::client::{BOTH, Client, Item, snapshot, tell};

const KINDS: [ResourceType; 5] = [Cluster, Endpoints, ExtensionConfig, Listener, RouteConfiguration];
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Contents by type and name.
type Resources = BTreeMap<ResourceType, BTreeMap<String, Vec<u8>>>;

/// Pseudo-random numbers, the same for each seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn pick(&mut self) -> Vec<&'static str> {
        NAMES.into_iter().filter(|_| self.roll(2) == 0).collect()
    }
}

/// A client that keeps what it accepts, as an Envoy does.
struct Node {
    variant: Variant,
    client: Client,
    wanted: BTreeMap<ResourceType, BTreeSet<&'static str>>,
    has: Resources,
    waiting: VecDeque<Response>,
    /// What it refused, which must not be sent again unless something else was sent between.
    refused: Vec<(ResourceType, String)>,
    answers: usize,
}

impl Node {
    fn new(variant: Variant) -> Self {
        let (wanted, has, waiting, refused, answers) = Default::default();
        Self { variant, client: Client::new(variant), wanted, has, waiting, refused, answers }
    }

    fn take(&mut self, responses: Vec<Response>) {
        for response in responses {
            if response.kind() != ExtensionConfig {
                let version = response.content.version.to_string();
                let again = self.refused.contains(&(response.kind(), version));
                // An incremental client may ask for single resources of what it refused.
                assert!(!again || self.variant == Variant::Incremental, "a refused version came again");
            }
            self.waiting.push_back(response);
        }
    }

    fn want(&mut self, kind: ResourceType, names: Vec<&'static str>) {
        // A client answers what it has got before it asks for something else: its request repeats the latest nonce.
        while self.waiting.iter().any(|response| response.kind() == kind) {
            self.answer(false);
        }
        let names: BTreeSet<_> = names.into_iter().collect();
        let before = self.wanted.insert(kind, names.clone());
        let list: Vec<_> = names.iter().copied().collect();
        let responses = match (self.variant, before) {
            (Variant::StateOfTheWorld, _) | (_, None) => self.client.subscribe(kind, &list),
            (Variant::Incremental, Some(before)) => {
                let gone: Vec<_> = before.difference(&names).copied().collect();
                let mut responses = self.client.unsubscribe(kind, &gone);
                let new: Vec<_> = names.difference(&before).copied().collect();
                responses.extend(self.client.subscribe(kind, &new));
                responses
            }
        };
        if let Some(has) = self.has.get_mut(&kind) {
            has.retain(|name, _| names.is_empty() || names.contains(name.as_str()));
        }
        // A client that subscribes anew is sent what it refused, too.
        self.refused.retain(|(of, _)| *of != kind);
        self.take(responses);
    }

    /// Answers the oldest response.
    fn answer(&mut self, refuses: bool) {
        let Some(response) = self.waiting.pop_front() else { return };
        self.answers += 1;
        assert!(self.answers < 5_000, "answers bring responses without end: {}", tell(&response));
        let (kind, content) = (response.kind(), &response.content);
        let names: Vec<_> = self.wanted[&kind].iter().copied().collect();
        // An empty response is content like any other: once refused, it would rightly not be sent in the end.
        let refuses = refuses && !content.resources.is_empty();
        let is_latest = self.waiting.iter().all(|later| later.kind() != kind);
        if refuses {
            // The answer to an older response is stale in state of the world, and ignored.
            if is_latest || self.variant == Variant::Incremental {
                self.refused.push((kind, content.version.to_string()));
            }
        } else {
            let has = self.has.entry(kind).or_default();
            if self.variant == Variant::StateOfTheWorld && kind.is_full_state() {
                has.clear();
            }
            has.extend(content.resources.iter().map(|it| (it.name.clone(), it.body.value.clone())));
            content.removed.iter().for_each(|name| {
                has.remove(name);
            });
            let wanted = &self.wanted[&kind];
            has.retain(|name, _| wanted.is_empty() || wanted.contains(name.as_str()));
        }
        let responses = match self.variant {
            Variant::StateOfTheWorld => self.client.answer_with(&response, refuses.then_some("no"), &names).responses,
            Variant::Incremental if refuses => self.client.nack(&response, "no").responses,
            Variant::Incremental => self.client.ack(&response).responses,
        };
        self.take(responses);
    }

    fn settle(&mut self) {
        for _ in 0..500 {
            while !self.waiting.is_empty() {
                self.answer(false);
            }
            let responses = self.client.wait(Duration::from_secs(60));
            if responses.is_empty() {
                return;
            }
            self.take(responses);
        }
        panic!("it never settles");
    }
}

fn random_snapshot(dice: &mut Dice, salt: &str) -> (Arc<Offers>, Resources) {
    let mut all: Resources = BTreeMap::new();
    for kind in KINDS {
        let names = dice.pick();
        let items = names.into_iter().map(|name| (name.to_owned(), format!("{salt}{}", dice.roll(3)).into_bytes()));
        all.insert(kind, items.collect());
    }
    let items =
        all.iter().flat_map(|(kind, named)| named.iter().map(|(name, it)| (*kind, name.as_str(), it.as_slice())));
    let items: Vec<Item<'_>> = items.collect();
    (snapshot(&items), all.clone())
}

fn history(variant: Variant, seed: u64) {
    let mut dice = Dice(seed);
    let mut node = Node::new(variant);
    for _ in 0..40 {
        match dice.roll(10) {
            0..3 => {
                let responses = node.client.publish(&random_snapshot(&mut dice, "").0);
                node.take(responses);
            }
            3..5 => {
                let kind = KINDS[usize::try_from(dice.roll(5)).unwrap()];
                let names = if kind.is_full_state() { Vec::new() } else { dice.pick() };
                // No names at all mean everything at first; then keep to that.
                if kind.is_full_state() || !names.is_empty() {
                    node.want(kind, names);
                }
            }
            5..9 => {
                let refuses = dice.roll(6) == 0;
                node.answer(refuses);
            }
            _ => {
                let responses = node.client.wait(Duration::from_secs(dice.roll(30)));
                node.take(responses);
            }
        }
    }
    node.settle();
    // No client knows these resources, so they are accepted whatever happened before.
    let (last, expect) = random_snapshot(&mut dice, "last");
    let responses = node.client.publish(&last);
    node.take(responses);
    node.settle();
    for (kind, wanted) in &node.wanted {
        let mut expect = expect[kind].clone();
        expect.retain(|name, _| wanted.is_empty() || wanted.contains(name.as_str()));
        let mut has = node.has.get(kind).cloned().unwrap_or_default();
        let tells_removals = variant == Variant::Incremental || kind.is_full_state();
        if !tells_removals || *kind == ExtensionConfig {
            has.retain(|name, _| expect.contains_key(name));
        }
        assert_eq!(has, expect, "{variant:?} {kind}, seed {seed}");
    }
    assert_eq!(node.client.session.deadline(), None, "nothing waits, seed {seed}");
}

#[test]
fn every_history_ends_with_what_is_in_force() {
    for variant in BOTH {
        for seed in 0..300 {
            history(variant, seed);
        }
    }
}

//! What an xDS server may and must send, written from the protocol document and the xDS cases (docs/rules.md). It knows
//! nothing of the server: it sees messages, keeps what the client has, and reports what is wrong with a response.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    hosts,
    truth::{Item, Truth},
    wire::{Contents, Kind, Request, Resource, Response, Variant, Wish},
};

/// The longest time in seconds for which a removal may wait for the resources that may use what is removed.
const PATIENCE: u64 = 20;

/// One stream: what the server must assume that its client wants and has.
#[derive(Debug)]
pub(crate) struct Stream {
    variant: Variant,
    pub(crate) subs: BTreeMap<Kind, Sub>,
    nonces: BTreeSet<String>,
    /// The route configurations that were sent before virtual hosts were asked for.
    routes_sent: BTreeSet<String>,
    /// The route configurations that changed, and that the client gets on another stream.
    replaced: BTreeSet<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wildcard {
    No,
    /// By a first request without names.
    Implied,
    Asked,
}

#[derive(Debug)]
pub(crate) struct Sub {
    wildcard: Wildcard,
    names: BTreeSet<String>,
    /// Virtual hosts: whether it gets the base set without asking.
    gets_base: bool,
    /// Virtual hosts that it unsubscribed from and that still exist.
    left: BTreeSet<String>,
    /// What the client has accepted.
    pub(crate) held: Contents,
    /// The version of the last response that it accepted.
    pub(crate) version: String,
    /// Unanswered responses, with the time when they were sent.
    pub(crate) unanswered: Vec<(Response, u64)>,
    latest: Option<String>,
    /// What was last sent, or reported by the client, under each name.
    sent: Contents,
    last_set: Option<String>,
    /// Names that may come again unchanged, because a response with them was refused.
    again: BTreeSet<String>,
    /// For each refused response, what was in force and wanted when it was sent, and its items.
    refused: Vec<(Contents, BTreeSet<(String, String)>)>,
    claims: bool,
    /// State of the world: what refused responses left out. The client has dropped it, as an Envoy applies the good part
    /// of what it refuses.
    left_out: BTreeSet<String>,
    /// Since when the client has had something that is no longer in force.
    beyond_since: Option<u64>,
    /// What the client lacks, after its last acceptance, of what was in force when that response was sent.
    lacks: Contents,
}

/// What a request must, or must not, cause.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    kind: Option<Kind>,
    /// The request is stale and must be ignored.
    is_stale: bool,
    /// Names that must be answered.
    asked: BTreeSet<String>,
    /// Names whose last good version must come at once.
    restored: BTreeSet<String>,
    /// It is the first of its type.
    is_first: bool,
}

impl Sub {
    fn new() -> Self {
        Self {
            wildcard: Wildcard::No,
            names: BTreeSet::new(),
            gets_base: false,
            left: BTreeSet::new(),
            held: Contents::new(),
            version: String::new(),
            unanswered: Vec::new(),
            latest: None,
            sent: Contents::new(),
            last_set: None,
            again: BTreeSet::new(),
            refused: Vec::new(),
            claims: false,
            left_out: BTreeSet::new(),
            beyond_since: None,
            lacks: Contents::new(),
        }
    }

    pub(crate) fn wants(&self, name: &str) -> bool {
        self.wildcard != Wildcard::No || self.names.contains(name)
    }

    /// What is in force of what is wanted.
    pub(crate) fn target(&self, kind: Kind, truth: &Truth) -> Contents {
        if kind == Kind::Hosts {
            return hosts::target(&truth.in_force[&kind], &self.names, self.gets_base, &self.left);
        }
        let all = truth.in_force.get(&kind).into_iter().flatten();
        all.filter(|(name, _)| self.wants(name)).map(|(name, content)| (name.clone(), content.clone())).collect()
    }

    /// What the client lacks, after its last acceptance, of what was in force and wanted when that response was sent and
    /// still is.
    pub(crate) fn lacks(&self, kind: Kind, truth: &Truth) -> Vec<&String> {
        let is_in_force = |(name, content): &(&String, &String)| truth.content(kind, name) == Some(*content);
        self.lacks.iter().filter(is_in_force).map(|(name, _)| name).filter(|name| self.wants(name)).collect()
    }

    /// Whether the client has what it should have. Deletions are sent for some types only.
    pub(crate) fn is_right(&self, kind: Kind, variant: Variant, truth: &Truth) -> bool {
        let target = self.target(kind, truth);
        let mut held = self.held.clone();
        if variant == Variant::World && !kind.is_full_state() || kind == Kind::Extension {
            held.retain(|name, _| target.contains_key(name));
        }
        held == target
    }

    /// The names that end when the client unsubscribes from these. The own name of a virtual host stands for all names
    /// by which it was subscribed to, and so does a name that was not subscribed to.
    fn leave(&mut self, kind: Kind, unsubscribe: &[String], truth: &Truth) -> Vec<String> {
        if kind != Kind::Hosts {
            return unsubscribe.to_vec();
        }
        let own = |name: &String| hosts::resolve(&truth.in_force[&kind], name).cloned();
        let is_whole = |name: &&String| !self.names.contains(*name) || own(name).as_ref() == Some(*name);
        let left: BTreeSet<_> = unsubscribe.iter().filter(is_whole).filter_map(own).collect();
        let aliases = self.names.iter().filter(|name| own(name).is_some_and(|it| left.contains(&it)));
        let gone = unsubscribe.iter().chain(aliases).cloned().collect();
        self.left.extend(left);
        gone
    }

    /// Whether the client may have a resource of this name, or is being sent one.
    fn may_have(&self, name: &str) -> bool {
        let comes = || self.unanswered.iter().any(|(sent, _)| sent.resources.iter().any(|it| it.name == name));
        self.has(name) || self.again.contains(name) || comes()
    }

    /// Whether the client has a resource of this name and still wants it.
    fn has(&self, name: &str) -> bool {
        self.sent.contains_key(name) || self.held.contains_key(name)
    }

    /// Whether the client dropped this with a refused response, and no response on its way brings it back.
    fn has_dropped(&self, name: &str) -> bool {
        let brings = |(sent, _): &(Response, u64)| sent.resources.iter().any(|it| it.name == name);
        self.left_out.contains(name) && !self.unanswered.iter().any(brings)
    }

    fn drop_unwanted(&mut self, kind: Kind) {
        if kind == Kind::Hosts {
            // It goes by many names: the server says which of them was the last.
            return;
        }
        let (wildcard, names) = (self.wildcard, self.names.clone());
        let wants = |name: &String| wildcard != Wildcard::No || names.contains(name);
        self.held.retain(|name, _| wants(name));
        self.sent.retain(|name, _| wants(name));
        self.again.retain(wants);
    }
}

impl Stream {
    pub(crate) fn new(variant: Variant) -> Self {
        let (subs, nonces) = (BTreeMap::new(), BTreeSet::new());
        Self { variant, subs, nonces, routes_sent: BTreeSet::new(), replaced: BTreeSet::new() }
    }

    /// The client sends a request.
    pub(crate) fn on_request(&mut self, request: &Request, truth: &mut Truth) -> Expected {
        let kind = request.kind;
        let is_first = !self.subs.contains_key(&kind);
        let sub = self.subs.entry(kind).or_insert_with(Sub::new);
        let mut expected = Expected { kind: Some(kind), is_first, ..Expected::default() };
        // What it answers, it has dealt with before it says what it wants now.
        let wanted = (sub.wildcard, sub.names.clone());
        match &request.wish {
            Wish::All { names, version } => {
                if !is_first && sub.latest.as_deref().unwrap_or_default() != request.nonce {
                    return Expected { is_stale: true, ..expected };
                }
                let all: BTreeSet<_> = names.iter().filter(|name| *name != "*").cloned().collect();
                let implied =
                    names.is_empty() && kind.is_full_state() && (is_first || sub.wildcard == Wildcard::Implied);
                expected.asked = all.difference(&sub.names).cloned().collect();
                sub.wildcard = match () {
                    () if implied => Wildcard::Implied,
                    () if names.iter().any(|name| name == "*") => Wildcard::Asked,
                    () => Wildcard::No,
                };
                sub.names = all;
                sub.claims |= is_first && !version.is_empty();
                sub.drop_unwanted(kind);
                if let Some(set) = truth.sets.get(&(kind, version.clone())).filter(|_| is_first) {
                    sub.sent.clone_from(set);
                    sub.held.clone_from(set);
                    sub.last_set = Some(version.clone());
                }
            }
            Wish::Changes { subscribe, unsubscribe, initial } => {
                let stars = subscribe.iter().any(|name| name == "*");
                if stars && sub.wildcard == Wildcard::No {
                    // What is under way comes by names that it dropped, or not: it may be sent again.
                    let coming = sub.unanswered.iter().flat_map(|(sent, _)| &sent.resources);
                    sub.again.extend(coming.map(|it| it.name.clone()));
                    sub.unanswered.iter_mut().for_each(|(sent, _)| sent.crossed = true);
                }
                expected.asked = subscribe.iter().filter(|name| *name != "*").cloned().collect();
                sub.wildcard = match sub.wildcard {
                    _ if stars => Wildcard::Asked,
                    Wildcard::No if is_first && subscribe.is_empty() && kind.is_full_state() => Wildcard::Implied,
                    before => before,
                };
                let unsubscribe = &sub.leave(kind, unsubscribe, truth);
                sub.gets_base |= is_first && (subscribe.is_empty() || !initial.is_empty());
                sub.names.extend(expected.asked.iter().cloned());
                if unsubscribe.iter().any(|name| name == "*") {
                    sub.wildcard = Wildcard::No;
                }
                for name in unsubscribe {
                    expected.asked.remove(name);
                    // Still wanted, and perhaps dropped with its name.
                    if sub.names.remove(name) && sub.wildcard != Wildcard::No {
                        expected.asked.insert(name.clone());
                    }
                }
                sub.drop_unwanted(kind);
                for (name, version) in initial {
                    // A virtual host that is gone is answered as removed under its own name.
                    expected.asked.retain(|asked| asked != name && truth.stands_for(kind, asked) != Some(name));
                    let known = truth
                        .versions
                        .iter()
                        .find(|((of, named, _), it)| *of == kind && named == name && *it == version);
                    let content = known.map_or_else(String::new, |((_, _, content), _)| content.clone());
                    truth.claimed.insert((kind, name.clone(), content.clone()));
                    if kind == Kind::Hosts || sub.wants(name) {
                        sub.sent.insert(name.clone(), content.clone());
                        sub.held.insert(name.clone(), content);
                    }
                }
                sub.claims |= !initial.is_empty();
                if kind == Kind::Hosts && is_first {
                    let replaced = |name: &&String| self.routes_sent.contains(hosts::routes_of(name));
                    sub.again.extend(initial.keys().filter(replaced).cloned());
                }
            }
        }
        // What is asked for again is answered anew.
        for (sent, _) in &mut sub.unanswered {
            sent.stands_for.retain(|name, _| !expected.asked.contains(name));
        }
        let place = sub.unanswered.iter().position(|(sent, _)| sent.nonce == request.nonce).filter(|_| !is_first);
        if let Some(place) = place {
            let (sent, _) = sub.unanswered.drain(..=place).next_back().unwrap();
            match &request.refuses {
                None => self.accept(&wanted, &sent, truth),
                Some(named) => expected.restored = self.refuse(&sent, named, truth),
            }
        }
        expected
    }

    fn accept(&mut self, wanted: &(Wildcard, BTreeSet<String>), response: &Response, truth: &mut Truth) {
        let (variant, kind) = (self.variant, response.kind);
        let was_wanted = |name: &String| wanted.0 != Wildcard::No || wanted.1.contains(name);
        let sub = self.subs.get_mut(&kind).unwrap();
        if variant == Variant::World && kind.is_full_state() {
            sub.held.clear();
            sub.left_out.clear();
        }
        for resource in &response.resources {
            truth.accept((kind, resource.name.clone(), resource.content.clone()));
            if !response.crossed {
                sub.again.remove(&resource.name);
            }
            if kind == Kind::Hosts || sub.wants(&resource.name) && was_wanted(&resource.name) {
                sub.held.insert(resource.name.clone(), resource.content.clone());
                if !sub.unanswered.iter().any(|(later, _)| later.mentions(&resource.name)) {
                    sub.sent.insert(resource.name.clone(), resource.content.clone());
                }
            }
        }
        for name in &response.removed {
            if !response.crossed {
                sub.again.remove(name);
            }
            sub.held.remove(name);
        }
        sub.version.clone_from(&response.version);
        let is_lacked = |(name, content): &(&String, &String)| {
            let is_doubted = truth.doubted.contains(&(kind, (*name).clone(), (*content).clone()));
            sub.wants(name) && !sub.again.contains(*name) && !is_doubted && sub.held.get(*name) != Some(*content)
        };
        let lacks = response.stands_for.iter().filter(is_lacked).map(|(name, it)| (name.clone(), it.clone())).collect();
        // A virtual host goes by many names: what the client still wants of them is the server's to say.
        sub.lacks = if kind == Kind::Hosts { Contents::new() } else { lacks };
    }

    /// Returns the names of extension configurations that are to be restored (case 33).
    fn refuse(&mut self, response: &Response, named: &[String], truth: &mut Truth) -> BTreeSet<String> {
        let kind = response.kind;
        let sub = self.subs.get_mut(&kind).unwrap();
        for resource in &response.resources {
            let item = (kind, resource.name.clone(), resource.content.clone());
            if named.contains(&resource.name) && !truth.accepted.contains(&item) {
                truth.blamed.insert(item.clone());
            }
            truth.doubted.insert(item);
            sub.again.insert(resource.name.clone());
            if sub.sent.get(&resource.name) == Some(&resource.content) {
                sub.sent.remove(&resource.name);
            }
        }
        sub.again.extend(response.removed.iter().cloned());
        sub.unanswered.iter_mut().for_each(|(later, _)| later.crossed = true);
        if self.variant == Variant::World && kind.is_full_state() {
            sub.left_out.extend(sub.held.keys().cloned());
            sub.left_out.retain(|name| !response.resources.iter().any(|it| it.name == *name));
        }
        let items = response.resources.iter().map(|it| (it.name.clone(), it.content.clone())).collect();
        sub.refused.push((response.target.clone(), items));
        let is_meant = |it: &&Resource| named.contains(&it.name) || response.resources.len() == 1;
        let meant = response.resources.iter().filter(is_meant).map(|it| (kind, it.name.clone(), it.content.clone()));
        let surely: Vec<_> = meant.filter(|item| !truth.accepted.contains(item)).collect();
        truth.rejected.extend(surely.iter().cloned());
        let is_good =
            |name: &String| sub.held.get(name).is_some_and(|it| truth.is_good((kind, name.clone(), it.clone())));
        let is_due = |(_, name, content): &Item| sub.wants(name) && truth.content(kind, name) == Some(content);
        let comes = |name: &String| sub.unanswered.iter().any(|(later, _)| later.mentions(name));
        let lost = surely.into_iter().filter(|item| kind == Kind::Extension && is_due(item));
        lost.map(|(_, name, _)| name).filter(|name| is_good(name) && !comes(name)).collect()
    }

    /// Records that something else is in force. Deletions of some types are not sent, but a client may have dropped the
    /// resource with the one that used it, so that it may come again unchanged.
    pub(crate) fn on_change(&mut self, truth: &Truth, now: u64) {
        for (kind, sub) in &mut self.subs {
            sub.left.retain(|name| truth.content(*kind, name).is_some());
            let target = sub.target(*kind, truth);
            let had = || [&sub.sent, &sub.held].into_iter().flat_map(BTreeMap::keys).chain(&sub.again);
            // What was refused may be had in part.
            let mut refused = sub.refused.iter().flat_map(|(_, items)| items).map(|(name, _)| name);
            let is_beyond = !had().all(|name| target.contains_key(name)) || refused.any(|it| !target.contains_key(it));
            sub.beyond_since = is_beyond.then(|| sub.beyond_since.unwrap_or(now));
            let is_withheld = |(name, it): (&String, &String)| {
                *kind == Kind::Extension && truth.doubted.contains(&(*kind, name.clone(), it.clone()))
            };
            let comes = |name: &String| target.get_key_value(name).is_some_and(|it| !is_withheld(it));
            if self.variant == Variant::World && !kind.is_full_state() && !sub.sent.keys().all(comes) {
                sub.sent.retain(|name, _| comes(name));
                sub.last_set = sub.last_set.take().map(|_| String::new());
            }
        }
    }

    /// Checks responses that the server sends because of a request, a change or the time.
    pub(crate) fn on_responses(
        &mut self,
        expected: &Expected,
        responses: &[Response],
        truth: &mut Truth,
        now: u64,
    ) -> Result<(), String> {
        if !responses.is_sorted_by_key(|response| response.kind) {
            return Err("types are not in the order in which they need each other".to_owned());
        }
        if expected.is_stale && responses.iter().any(|response| Some(response.kind) == expected.kind) {
            return Err("a stale request was answered".to_owned());
        }
        let mut changed = BTreeMap::new();
        let mut replaced = std::mem::take(&mut self.replaced);
        self.drop_hosts(&replaced);
        for response in responses {
            self.check(response, expected, &changed, truth, now).map_err(|wrong| format!("{wrong} in {response}"))?;
            if response.kind == Kind::Cluster {
                let sub = &self.subs[&Kind::Cluster];
                let is_sent = |it: &Resource| sub.sent.get(&it.name) == Some(&it.content);
                let carries = |sent: &Response, it: &Resource| sent.resources.contains(it);
                let crosses = |it: &Resource| sub.unanswered.iter().any(|(sent, _)| carries(sent, it));
                let may_be_new = |it: &&Resource| !is_sent(it) || sub.again.contains(&it.name) || crosses(it);
                for it in response.resources.iter().filter(may_be_new) {
                    // What was in a refused response may be what the client has, and so may what is only kept; what
                    // comes again is new if the response that brought it is refused.
                    let is_new = !is_sent(it) && sub.held.get(&it.name) != Some(&it.content);
                    let surely = is_new && truth.content(Kind::Cluster, &it.name) == Some(&it.content);
                    changed.insert(it.name.clone(), surely);
                }
            }
            if response.kind == Kind::Routes {
                let sub = &self.subs[&Kind::Routes];
                let is_new =
                    |it: &&Resource| sub.sent.get(&it.name) != Some(&it.content) || sub.again.contains(&it.name);
                let sent: BTreeSet<_> = response.resources.iter().filter(is_new).map(|it| it.name.clone()).collect();
                self.drop_hosts(&sent);
                let is_asked = expected.kind == Some(Kind::Routes);
                let surely = |name: &String| !is_asked && !self.subs[&Kind::Routes].again.contains(name);
                replaced.extend(sent.into_iter().filter(surely));
            }
            self.note(response, truth, now);
        }
        self.check_replaced(&replaced, responses, truth)?;
        self.on_change(truth, now);
        self.check_warming(&changed, responses, truth)?;
        if expected.is_stale { Ok(()) } else { self.check_answers(expected, responses, truth) }
    }

    /// Checks what a response has.
    fn check(
        &mut self,
        response: &Response,
        expected: &Expected,
        changed: &BTreeMap<String, bool>,
        truth: &mut Truth,
        now: u64,
    ) -> Result<(), String> {
        let (kind, variant) = (response.kind, self.variant);
        if !self.nonces.insert(response.nonce.clone()) || response.nonce.is_empty() {
            return Err("the nonce is not new".to_owned());
        }
        let users_wait = [Kind::Extension, Kind::Listener, Kind::Routes, Kind::Hosts]
            .iter()
            .any(|user| self.subs.get(user).is_some_and(|sub| !sub.unanswered.is_empty()));
        let Some(sub) = self.subs.get(&kind) else { return Err("nobody asked for this type".to_owned()) };
        let mut meant = expected.asked.iter().filter_map(|name| truth.stands_for(kind, name)).cloned();
        let meant: BTreeSet<_> = meant.by_ref().filter(|_| expected.kind == Some(kind)).collect();
        let asked = |name: &str| meant.contains(name);
        let target = sub.target(kind, truth);
        // An Envoy keeps a refused extension configuration as its last, whatever it says: the good one is told again.
        let is_retold = kind == Kind::Extension
            && target.iter().any(|(name, it)| truth.doubted.contains(&(kind, name.clone(), it.clone())));
        for resource in &response.resources {
            truth.check_version(kind, resource)?;
            let Resource { name, content, .. } = resource;
            let item = |content: &String| (kind, name.clone(), content.clone());
            if kind == Kind::Hosts && !target.contains_key(name) || kind != Kind::Hosts && !sub.wants(name) {
                return Err(format!("`{name}` is not subscribed to"));
            }
            let comes = || sub.unanswered.iter().any(|(sent, _)| sent.has(name, content));
            let had = [&sub.sent, &sub.held].iter().any(|had| had.get(name) == Some(content)) || comes();
            let is_right = match target.get(name) {
                // What is in force, or what there is instead of what the node refused.
                Some(current) if truth.doubted.contains(&item(current)) => {
                    current == content || had || truth.accepted.contains(&item(content))
                }
                Some(current) => current == content,
                // It is kept until no resource uses it any more.
                None => {
                    variant == Variant::World
                        && kind.is_full_state()
                        && (had || truth.accepted.contains(&item(content)))
                        && !sub.has_dropped(name)
                }
            };
            if !is_right {
                return Err(format!("`{name}` is not what is in force"));
            }
            if kind == Kind::Extension && truth.rejected.contains(&item(content)) {
                return Err(format!("`{name}` was refused, and would be accepted without being applied (case 33)"));
            }
            let elsewhere = truth.blamed.contains(&item(content));
            let here = sub.refused.iter().any(|(_, items)| items.contains(&(name.clone(), content.clone())));
            // Design choice: the protocol document does not rule what happens on another stream of the node.
            let known = sub.sent.get(name) == Some(content);
            if elsewhere && !here && !known && sub.last_set.is_some() {
                return Err(format!("`{name}` was refused on another stream"));
            }
            let warms = kind == Kind::Endpoints && changed.contains_key(name);
            let retold = is_retold && expected.is_first;
            if variant == Variant::Delta && known && !asked(name) && !sub.again.contains(name) && !warms && !retold {
                return Err(format!("`{name}` did not change"));
            }
        }
        // "It will cause Envoy and the management server to spin" (case 13). Who is to blame is not said: nothing that
        // was in a refused response comes alone and unasked, as long as the same is in force.
        let all_in = |(of, items): &(Contents, BTreeSet<(String, String)>)| {
            let is_in = |it: &Resource| items.contains(&(it.name.clone(), it.content.clone()));
            // If it had what was only kept for others, it comes without that.
            let kept = items.iter().any(|(name, _)| !of.contains_key(name));
            let stands = items.iter().all(|(name, it)| truth.stands((kind, name.clone(), it.clone())));
            *of == target && !kept && stands && response.resources.iter().all(is_in)
        };
        let is_doubted = |it: &Resource| truth.doubted.contains(&(kind, it.name.clone(), it.content.clone()));
        let says_nothing_else = expected.asked.is_empty() && !expected.is_first && response.removed.is_empty();
        // Extension configurations are judged one by one (above).
        let says_nothing_else = says_nothing_else && kind != Kind::Extension;
        if says_nothing_else && response.resources.iter().any(is_doubted) && sub.refused.iter().any(all_in) {
            return Err("this was refused, and nothing changed since".to_owned());
        }
        let is_withheld =
            |name: &String, content: &String| truth.doubted.contains(&(kind, name.clone(), content.clone()));
        let has = |name: &String| response.resources.iter().any(|it| it.name == *name);
        if variant == Variant::World && kind.is_full_state() {
            let missing = target.iter().find(|(name, content)| !has(name) && !is_withheld(name, content));
            if let Some((name, _)) = missing {
                return Err(format!("`{name}` is missing from the complete state"));
            }
        }
        let warms = kind == Kind::Endpoints && !changed.is_empty();
        // "The server must resend any newly requested resource, even if […] the resource has not changed since that
        // time": a client that dropped a name does so by `*` as well.
        let has_all = response.resources.iter().all(|it| sub.sent.get(&it.name) == Some(&it.content));
        let same = has_all && sub.last_set.as_ref() == Some(&response.version) && sub.again.is_empty();
        if variant == Variant::World && same && !is_retold && expected.asked.is_empty() && !expected.is_first && !warms
        {
            return Err("nothing changed".to_owned());
        }
        sub.check_names(response, expected, truth)?;
        let mut gone: Vec<_> = response.removed.iter().collect();
        for name in &response.removed {
            if target.contains_key(name) {
                return Err(format!("`{name}` is in force, and told as removed"));
            }
            if kind == Kind::Extension && sub.has(name) {
                return Err(format!("`{name}` may be in use: removal acts at once (case 32)"));
            }
            let comes = sub.unanswered.iter().any(|(sent, _)| sent.resources.iter().any(|it| it.name == *name));
            if !asked(name) && !sub.sent.contains_key(name) && !sub.again.contains(name) && !comes {
                return Err(format!("the client never had `{name}`"));
            }
        }
        if variant == Variant::World && kind.is_full_state() {
            gone.extend(sub.sent.keys().filter(|name| !has(name) && !target.contains_key(*name)));
        }
        gone.retain(|name| sub.sent.contains_key(*name) && !asked(name));
        let is_early = sub.beyond_since.is_none_or(|since| now < since + PATIENCE);
        if kind == Kind::Cluster && users_wait && is_early && !gone.is_empty() {
            return Err(format!("{gone:?} may be in use: routes or listeners are not answered yet"));
        }
        let set: Contents = response.resources.iter().map(|it| (it.name.clone(), it.content.clone())).collect();
        if variant == Variant::World {
            let known = truth.sets.entry((kind, response.version.clone())).or_insert_with(|| set.clone());
            if *known != set {
                return Err("a version stands for two sets".to_owned());
            }
        }
        Ok(())
    }

    fn note(&mut self, response: &Response, truth: &Truth, now: u64) {
        let variant = self.variant;
        let Some(sub) = self.subs.get_mut(&response.kind) else { return };
        if variant == Variant::World {
            sub.sent.clear();
            sub.again.clear();
        }
        sub.sent.extend(response.resources.iter().map(|it| (it.name.clone(), it.content.clone())));
        response.removed.iter().for_each(|name| drop(sub.sent.remove(name)));
        sub.latest = Some(response.nonce.clone());
        sub.last_set = Some(response.version.clone());
        let target = sub.target(response.kind, truth);
        sub.unanswered.push((Response { stands_for: target.clone(), target, ..response.clone() }, now));
    }

    /// Checks that a changed cluster is followed by its endpoints, changed or not, since it warms until they come.
    /// Those that may have changed have `false`.
    fn check_warming(
        &mut self,
        changed: &BTreeMap<String, bool>,
        responses: &[Response],
        truth: &Truth,
    ) -> Result<(), String> {
        let Some(sub) = self.subs.get_mut(&Kind::Endpoints) else { return Ok(()) };
        let sent = responses.iter().find(|response| response.kind == Kind::Endpoints);
        let wanted: Vec<_> = changed.iter().filter(|(name, _)| sub.wants(name)).collect();
        for (name, surely) in wanted {
            let Some(content) = truth.content(Kind::Endpoints, name) else { continue };
            let refused = !sub.refused.is_empty() || !sub.again.is_empty();
            let doubted = truth.doubted.iter().any(|(kind, ..)| *kind == Kind::Endpoints);
            let comes = sent.is_some_and(|response| response.resources.iter().any(|it| it.name == *name));
            if *surely && !comes && !refused && !doubted && sub.sent.get(name) == Some(content) {
                return Err(format!("the endpoints of the changed cluster `{name}` do not follow it"));
            }
            if !comes {
                // Withheld after a refusal: they are still owed.
                sub.again.insert(name.clone());
                sub.unanswered.iter_mut().for_each(|(later, _)| later.crossed = true);
            }
        }
        Ok(())
    }

    /// The client drops the virtual hosts of a replaced route configuration: they may come again.
    fn drop_hosts(&mut self, routes: &BTreeSet<String>) {
        let Some(sub) = self.subs.get_mut(&Kind::Hosts) else {
            self.routes_sent.extend(routes.iter().cloned());
            return;
        };
        let had = [&sub.sent, &sub.held].into_iter().flat_map(BTreeMap::keys);
        let dropped: Vec<_> = had.filter(|name| routes.contains(hosts::routes_of(name))).cloned().collect();
        if !dropped.is_empty() {
            sub.again.extend(dropped);
            sub.unanswered.iter_mut().for_each(|(later, _)| later.crossed = true);
        }
    }

    /// Records that these route configurations changed. A client that does not ask for them here gets them on another
    /// stream.
    pub(crate) fn on_replaced(&mut self, routes: &BTreeSet<String>) {
        if !self.subs.contains_key(&Kind::Routes) && self.subs.contains_key(&Kind::Hosts) {
            self.replaced.extend(routes.iter().cloned());
        }
    }

    /// Checks that a replaced route configuration is followed by its virtual hosts, changed or not.
    fn check_replaced(&self, routes: &BTreeSet<String>, responses: &[Response], truth: &Truth) -> Result<(), String> {
        let Some(sub) = self.subs.get(&Kind::Hosts).filter(|sub| sub.refused.is_empty()) else { return Ok(()) };
        let waits = self.subs.get(&Kind::Cluster).is_some_and(|sub| !sub.unanswered.is_empty());
        let doubted = truth.doubted.iter().any(|(kind, ..)| *kind == Kind::Hosts);
        let sent = |name: &String| responses.iter().any(|it| it.kind == Kind::Hosts && it.mentions(name));
        let target = sub.target(Kind::Hosts, truth);
        let mut within = target.keys().filter(|name| routes.contains(hosts::routes_of(name)));
        match within.find(|name| !sent(name)).filter(|_| !waits && !doubted) {
            Some(name) => Err(format!("`{name}` does not follow its route configuration")),
            None => Ok(()),
        }
    }

    /// Checks what a request must bring.
    fn check_answers(&mut self, expected: &Expected, responses: &[Response], truth: &Truth) -> Result<(), String> {
        let Some((kind, sub)) = expected.kind.and_then(|kind| Some((kind, self.subs.get_mut(&kind)?))) else {
            return Ok(());
        };
        let response = responses.iter().find(|response| response.kind == kind);
        let target = sub.target(kind, truth);
        let has = |name: &String| response.is_some_and(|it| it.resources.iter().any(|it| it.name == *name));
        let is_removed = |name: &String| response.is_some_and(|it| it.removed.contains(name));
        for name in &expected.asked {
            if kind == Kind::Hosts && truth.stands_for(kind, name).is_none() {
                if !response.is_some_and(|it| it.vacant.contains(name)) {
                    return Err(format!("`{name}` stands for nothing, and that is not said in {response:?}"));
                }
                continue;
            }
            let name = truth.stands_for(kind, name).unwrap_or(name);
            let answered = match target.get(name) {
                Some(content) => has(name) || truth.doubted.contains(&(kind, name.clone(), content.clone())),
                // It is not withdrawn, not even by the answer to a question.
                None if kind == Kind::Extension && sub.may_have(name) => true,
                None => self.variant == Variant::World || is_removed(name),
            };
            if !has(name) && !is_removed(name) {
                // Withheld: it may come once the refusal is got past.
                sub.again.insert(name.clone());
                sub.unanswered.iter_mut().for_each(|(later, _)| later.crossed = true);
            }
            let is_excused = expected.is_first && sub.claims && self.variant == Variant::World;
            if !(answered || is_excused) {
                return Err(format!("`{name}` was asked for, and is not in {response:?}"));
            }
        }
        for name in &expected.restored {
            let is_good =
                |it: &&Resource| it.name == *name && truth.is_good((kind, it.name.clone(), it.content.clone()));
            if !response.is_some_and(|response| response.resources.iter().any(|it| is_good(&it))) {
                return Err(format!("the last good `{name}` does not come at once (case 33)"));
            }
        }
        if expected.is_first && !sub.claims {
            // Who comes with nothing gets something, unless it refused all that there is and that must not come again.
            let refused = |(name, it): (&String, &String)| truth.doubted.contains(&(kind, name.clone(), it.clone()));
            let nothing_left = kind == Kind::Extension && target.iter().all(refused);
            if !target.is_empty() && !nothing_left && response.is_none_or(|response| response.resources.is_empty()) {
                return Err("a client that has nothing got nothing".to_owned());
            }
            let greeted = response.is_some() || sub.wildcard == Wildcard::No;
            if !greeted && kind.is_full_state() {
                return Err("a wildcard that stands for nothing was not answered".to_owned());
            }
        }
        Ok(())
    }
}

impl Sub {
    /// Checks that names without a match were asked for and have none, and that a virtual host has all names by which
    /// it was asked for.
    fn check_names(&self, response: &Response, expected: &Expected, truth: &Truth) -> Result<(), String> {
        let kind = response.kind;
        for name in &response.vacant {
            let is_asked = expected.kind == Some(kind) && expected.asked.contains(name);
            if !is_asked || kind != Kind::Hosts || truth.stands_for(kind, name).is_some() {
                return Err(format!("`{name}` is said to stand for nothing"));
            }
        }
        for resource in response.resources.iter().filter(|_| kind == Kind::Hosts) {
            let is_it = |name: &&String| truth.stands_for(kind, name) == Some(&resource.name);
            if let Some(other) = resource.aliases.iter().find(|name| !is_it(name)) {
                return Err(format!("`{}` does not go by `{other}`", resource.name));
            }
            let mut known = self.names.iter().filter(is_it).filter(|name| **name != resource.name);
            if let Some(name) = known.find(|name| !resource.aliases.contains(*name)) {
                return Err(format!("`{}` does not tell that it goes by `{name}`", resource.name));
            }
        }
        Ok(())
    }
}

//! A node with several streams that does whatever a client may do, in a pseudo-random order.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant, UNIX_EPOCH},
};

use envoy_types::pb::envoy::config::route::v3::VirtualHost;
use postern_base::node::NodeIdentity;
use postern_compile::snapshot::{Resource, ResourceType};
use postern_deliver::xds::{
    Offers, content,
    session::{self, Event, Reaction, Session},
};
use postern_fixtures::assembled;
use postern_release::fleet::{Fleet, Learnt};
use prost::Message as _;

use crate::{
    hosts,
    model::{Expected, Stream},
    truth::Truth,
    wire::{self, Contents, Kind, Request, Response, Variant, Wish},
};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// Names of virtual hosts and of the hosts that they may serve. One name is also such a host.
const HOSTS: [&str; 3] = ["h", "i", "x.test"];
const DOMAINS: [&str; 6] = ["x.test", "y.test", "z.other", "*.test", "x.*", "*"];
/// The other names by which virtual hosts are asked for.
const ASKED: [&str; 5] = ["x.test", "y.test", "z.other", "v.test", "x.other"];
const STEPS: usize = 50;

/// Pseudo-random numbers, the same for each seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn one_of<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        let length = u64::try_from(from.len()).unwrap();
        (length > 0).then(|| from[usize::try_from(self.roll(length)).unwrap()])
    }

    fn names(&mut self) -> Vec<String> {
        NAMES.into_iter().filter(|_| self.roll(2) == 0).map(str::to_owned).collect()
    }

    /// Some names of virtual hosts, which may match other hosts than those that exist.
    fn host_names(&mut self) -> Vec<String> {
        let all = ["a", "b"].into_iter().flat_map(|routes| HOSTS.iter().chain(&ASKED[1..]).map(move |it| (routes, it)));
        all.filter(|_| self.roll(5) == 0).map(|(routes, host)| format!("{routes}/{host}")).collect()
    }

    /// Some virtual hosts of two route configurations. No domain occurs twice.
    fn hosts(&mut self, salt: &str) -> Contents {
        let mut hosts = Contents::new();
        for routes in ["a", "b"] {
            let mut served: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
            for domain in DOMAINS {
                let host = if domain == "x.test" { "x.test" } else { HOSTS[usize::try_from(self.roll(3)).unwrap()] };
                // In the end there are none that answer 404, which never change.
                if self.roll(3) == 0 || (domain == "*" && !salt.is_empty()) {
                    served.entry(host).or_default().push(domain);
                }
            }
            for (host, domains) in served {
                let label = format!("{salt}{}", self.roll(2));
                hosts.insert(format!("{routes}/{host}"), hosts::content(&label, &domains));
            }
        }
        hosts::with_base(hosts)
    }
}

/// An open stream: the server's session, the model's state and the client's.
struct Open {
    number: u64,
    session: Session,
    model: Stream,
    /// State of the world: the names that the client wants. The server may not know them yet.
    names: BTreeMap<Kind, Vec<String>>,
    /// Nonces that were answered, for stale requests.
    old: BTreeMap<Kind, Vec<String>>,
}

struct Node {
    seed: u64,
    talks: bool,
    variant: Variant,
    dice: Dice,
    fleet: Fleet,
    truth: Truth,
    snapshot: Arc<Offers>,
    streams: Vec<Open>,
    start: Instant,
    /// The time in seconds since the start.
    now: u64,
}

/// Runs one sequence. Panics with its seed if a response is wrong.
pub(crate) fn history(variant: Variant, seed: u64, talks: bool) {
    let (fleet, truth, start) = (Fleet::default(), Truth::default(), Instant::now());
    let (dice, snapshot) = (Dice(seed), assemble(&BTreeMap::new()));
    let mut node = Node { seed, talks, variant, dice, fleet, truth, snapshot, streams: Vec::new(), start, now: 0 };
    node.publish("");
    node.open();
    for _ in 0..STEPS {
        node.step();
    }
    node.settle();
    // No client knows these resources, so they are accepted whatever happened before.
    node.publish("last");
    node.settle();
    node.check_end();
}

impl Node {
    fn fail(&self, wrong: &str) -> ! {
        panic!("{:?}, seed {}: {wrong}", self.variant, self.seed)
    }

    fn say(&self, what: &str) {
        if self.talks {
            println!("{:>4} s  {what}", self.now);
        }
    }

    fn instant(&self) -> Instant {
        self.start + Duration::from_secs(self.now)
    }

    fn step(&mut self) {
        let stream = usize::try_from(self.dice.roll(self.streams.len().max(1) as u64)).unwrap();
        match self.dice.roll(20) {
            0..=3 => self.publish(""),
            4..=7 => self.ask(stream),
            8..=13 => self.answer_some(stream),
            14 => self.pass(1),
            15 => {
                let seconds = self.dice.roll(30);
                self.pass(seconds);
            }
            16 => self.come_back(stream),
            17 if self.streams.len() < 3 => self.open(),
            18 if self.streams.len() > 1 => drop(self.close(stream)),
            _ => self.ask_too_late(stream),
        }
        // Changes wait for a client that leaves many unanswered, which would be another matter.
        for stream in 0..self.streams.len() {
            for &kind in Kind::all(self.variant) {
                while self.unanswered(stream, kind) > 8 {
                    self.answer(stream, kind, false, false);
                }
            }
        }
    }

    fn publish(&mut self, salt: &str) {
        let mut next = BTreeMap::new();
        for &kind in Kind::all(self.variant) {
            if kind == Kind::Hosts {
                next.insert(kind, self.dice.hosts(salt));
                continue;
            }
            let names = self.dice.names();
            let contents = names.into_iter().map(|name| (name, format!("{salt}{}", self.dice.roll(3))));
            next.insert(kind, contents.collect::<Contents>());
        }
        // Often little changes.
        if salt.is_empty() && self.dice.roll(2) == 0 {
            let changes = self.dice.one_of(Kind::all(self.variant)).unwrap();
            let kept = |kind: &Kind| *kind != changes;
            next.extend(
                self.truth.in_force.iter().filter(|(kind, _)| kept(kind)).map(|(kind, it)| (*kind, it.clone())),
            );
        }
        self.say(&format!("in force: {next:?}"));
        self.snapshot = assemble(&next);
        let before = std::mem::replace(&mut self.truth.in_force, next);
        let routes = |all: &BTreeMap<Kind, Contents>, name: &str| all.get(&Kind::Routes)?.get(name).cloned();
        let is_replaced = |name: &&str| routes(&before, name) != routes(&self.truth.in_force, name);
        let replaced = NAMES.into_iter().filter(is_replaced).map(str::to_owned).collect();
        self.streams.iter_mut().for_each(|open| open.model.on_replaced(&replaced));
        self.streams.iter_mut().for_each(|open| open.model.on_change(&self.truth, self.now));
        for stream in 0..self.streams.len() {
            let (revision, snapshot, now) =
                (self.snapshot.revision().clone(), Arc::clone(&self.snapshot), self.instant());
            let reaction = self.streams[stream].session.on_snapshot(revision, snapshot, now);
            self.take(stream, &Expected::default(), reaction);
        }
    }

    fn open(&mut self) {
        let identity = NodeIdentity { id: "node".to_owned(), ..NodeIdentity::default() };
        let joined = self.fleet.connect(&identity, UNIX_EPOCH);
        let variant = match self.variant {
            Variant::World => content::Variant::StateOfTheWorld,
            Variant::Delta => content::Variant::Incremental,
        };
        let session = Session::new(variant, joined.stream, joined.memory.recall());
        self.say(&format!("stream {} is opened", joined.stream));
        let (model, names, old) = (Stream::new(self.variant), BTreeMap::new(), BTreeMap::new());
        self.streams.push(Open { number: joined.stream, session, model, names, old });
        let stream = self.streams.len() - 1;
        let (revision, snapshot, now) = (self.snapshot.revision().clone(), Arc::clone(&self.snapshot), self.instant());
        let reaction = self.streams[stream].session.on_snapshot(revision, snapshot, now);
        self.take(stream, &Expected::default(), reaction);
    }

    fn close(&mut self, stream: usize) -> Open {
        let open = self.streams.remove(stream);
        self.say(&format!("stream {} ends", open.number));
        self.fleet.disconnect("node", open.number, UNIX_EPOCH);
        open
    }

    /// Ends a stream and opens another with the same subscriptions, and with what the client has or, after a restart,
    /// with nothing.
    fn come_back(&mut self, stream: usize) {
        let before = self.close(stream);
        let restarts = self.dice.roll(2) == 0;
        self.open();
        let stream = self.streams.len() - 1;
        for (kind, sub) in before.model.subs {
            let mut names = before.names.get(&kind).cloned().unwrap_or_default();
            if restarts && kind == Kind::Hosts {
                // They are asked for when requests come.
                names.clear();
            }
            self.streams[stream].names.insert(kind, names.clone());
            let wish = match self.variant {
                Variant::World => Wish::All { names, version: if restarts { String::new() } else { sub.version } },
                Variant::Delta => {
                    let held = sub.held.iter().filter(|_| !restarts);
                    let version =
                        |(name, content): (&String, &String)| (name.clone(), self.truth.version(kind, name, content));
                    let initial = held.map(version).filter(|(_, version)| !version.is_empty()).collect();
                    Wish::Changes { subscribe: names, unsubscribe: Vec::new(), initial }
                }
            };
            self.send(stream, Request { kind, nonce: String::new(), refuses: None, wish });
        }
    }

    /// Changes the subscriptions of a stream.
    fn ask(&mut self, stream: usize) {
        let kind = self.dice.one_of(Kind::all(self.variant)).unwrap();
        let old = self.streams[stream].old.get(&kind);
        let nonce = match self.variant {
            // It has answered what it has got, and repeats that nonce.
            Variant::World => old.and_then(|old| old.last()).cloned().unwrap_or_default(),
            // What is wanted counts, whatever the nonce.
            Variant::Delta => {
                let old = old.cloned().unwrap_or_default();
                let place = usize::try_from(self.dice.roll(3 * old.len() as u64 + 1)).unwrap();
                old.get(place).cloned().unwrap_or_default()
            }
        };
        let wish = self.other_names(stream, kind);
        self.send(stream, Request { kind, nonce, refuses: None, wish });
    }

    fn other_names(&mut self, stream: usize, kind: Kind) -> Wish {
        let mut names = if kind == Kind::Hosts { self.dice.host_names() } else { self.dice.names() };
        match self.dice.roll(6) {
            0 => names = Vec::new(),
            1 if kind != Kind::Hosts => names.push("*".to_owned()),
            _ => {}
        }
        let open = &mut self.streams[stream];
        let before = open.names.insert(kind, names.clone());
        match self.variant {
            Variant::World => Wish::All { names, version: String::new() },
            Variant::Delta => {
                let before = before.unwrap_or_default();
                let gone = before.iter().filter(|name| !names.contains(name));
                let unsubscribe: Vec<_> = gone.cloned().collect();
                // Now and then it asks again for what it has asked for.
                let again = self.dice.roll(4) == 0;
                let new = names.iter().filter(|name| again || !before.contains(name));
                Wish::Changes { subscribe: new.cloned().collect(), unsubscribe, initial: BTreeMap::new() }
            }
        }
    }

    /// State of the world: sends a request that crossed a response, or has an unknown nonce.
    fn ask_too_late(&mut self, stream: usize) {
        if self.variant == Variant::Delta || self.streams.is_empty() {
            return;
        }
        let kind = self.dice.one_of(Kind::all(self.variant)).unwrap();
        if !self.streams[stream].model.subs.contains_key(&kind) {
            return;
        }
        let nonce = match self.dice.roll(2) {
            0 => "no-such-nonce".to_owned(),
            // All but the latest are stale.
            _ => match self.streams[stream].old.get(&kind).and_then(|old| old.iter().rev().nth(1)) {
                Some(nonce) => nonce.clone(),
                None => return,
            },
        };
        let refuses = (self.dice.roll(2) == 0).then(Vec::new);
        let wish = Wish::All { names: self.dice.names(), version: String::new() };
        self.send(stream, Request { kind, nonce, refuses, wish });
    }

    fn unanswered(&self, stream: usize, kind: Kind) -> usize {
        self.streams[stream].model.subs.get(&kind).map_or(0, |sub| sub.unanswered.len())
    }

    fn answer_some(&mut self, stream: usize) {
        if self.streams.is_empty() {
            return;
        }
        let waiting: Vec<_> =
            Kind::all(self.variant).iter().copied().filter(|kind| self.unanswered(stream, *kind) > 0).collect();
        if let Some(kind) = self.dice.one_of(&waiting) {
            let refuses = self.dice.roll(5) == 0;
            self.answer(stream, kind, refuses, true);
        }
    }

    /// Answers the oldest response of a type.
    fn answer(&mut self, stream: usize, kind: Kind, refuses: bool, may_change: bool) {
        let open = &mut self.streams[stream];
        let Some((response, _)) = open.model.subs[&kind].unanswered.first().cloned() else { return };
        // State of the world: only the answer to the latest counts, and the others are as good as never sent.
        let is_latest = open.model.subs[&kind].unanswered.len() == 1;
        open.old.entry(kind).or_default().push(response.nonce.clone());
        if self.variant == Variant::World && !is_latest {
            open.model.subs.get_mut(&kind).unwrap().unanswered.remove(0);
        }
        // An empty response is content like any other: once refused, it would rightly not be sent in the end.
        let refuses = refuses && !response.resources.is_empty();
        let names = open.names.get(&kind).cloned().unwrap_or_default();
        let changes = may_change && self.dice.roll(8) == 0;
        let wish = match self.variant {
            // An answer may change names, too.
            _ if changes => self.other_names(stream, kind),
            Variant::World => {
                let version = if refuses { String::new() } else { response.version.clone() };
                Wish::All { names, version }
            }
            Variant::Delta => {
                Wish::Changes { subscribe: Vec::new(), unsubscribe: Vec::new(), initial: BTreeMap::new() }
            }
        };
        let blamed = response.resources.first().map(|it| it.name.clone()).filter(|_| self.dice.roll(2) == 0);
        let refuses = refuses.then(|| blamed.into_iter().collect());
        self.send(stream, Request { kind, nonce: response.nonce, refuses, wish });
    }

    fn pass(&mut self, seconds: u64) {
        self.now += seconds;
        for stream in 0..self.streams.len() {
            let now = self.instant();
            let session = &mut self.streams[stream].session;
            if session.deadline().is_some_and(|deadline| deadline <= now) {
                let reaction = session.on_deadline(now);
                self.take(stream, &Expected::default(), reaction);
            }
        }
    }

    fn send(&mut self, stream: usize, request: Request) {
        self.say(&format!("stream {}: {request}", self.streams[stream].number));
        let now = self.instant();
        let open = &mut self.streams[stream];
        let expected = open.model.on_request(&request, &mut self.truth);
        let reaction = open.session.on_request(to_session(request), now);
        self.take(stream, &expected, reaction);
    }

    fn take(&mut self, stream: usize, expected: &Expected, reaction: Reaction) {
        let responses: Vec<_> = reaction.responses.iter().map(from_session).collect();
        responses.iter().for_each(|response| self.say(&format!("    {response}")));
        let open = &mut self.streams[stream];
        let checked = open.model.on_responses(expected, &responses, &mut self.truth, self.now);
        let is_settled = reaction.events.iter().any(|event| matches!(event, Event::Settled { .. }));
        let number = open.number;
        self.check_accepted(stream, &reaction.events);
        self.fleet.record("node", number, Learnt { events: reaction.events, reason: None }, UNIX_EPOCH);
        if let Err(wrong) = checked {
            self.fail(&wrong);
        }
        if is_settled {
            self.check_settled(stream);
        }
    }

    /// Checks that a type is reported as accepted only once the client has all that the accepted response stood for.
    fn check_accepted(&self, stream: usize, events: &[Event]) {
        let acked = |of: ResourceType| events.iter().any(|it| matches!(it, Event::Acked { kind, .. } if *kind == of));
        for (kind, sub) in &self.streams[stream].model.subs {
            let lacks = sub.lacks(*kind, &self.truth);
            if acked(type_of(*kind)) && !lacks.is_empty() {
                self.fail(&format!("{kind:?} is said to be accepted, and the client lacks {lacks:?}"));
            }
        }
    }

    /// Checks that a stream that is reported as settled runs all that it subscribed to.
    fn check_settled(&self, stream: usize) {
        for (kind, sub) in &self.streams[stream].model.subs {
            if !sub.unanswered.is_empty() || !sub.is_right(*kind, self.variant, &self.truth) {
                self.fail(&format!("{kind:?} is said to be settled, and has {sub:?}"));
            }
        }
    }

    /// Accepts everything, and lets time pass until no response comes any more.
    fn settle(&mut self) {
        for _ in 0..200 {
            for stream in 0..self.streams.len() {
                for &kind in Kind::all(self.variant) {
                    while self.unanswered(stream, kind) > 0 {
                        self.answer(stream, kind, false, false);
                    }
                }
            }
            self.pass(60);
            let waits = |open: &Open| open.model.subs.values().any(|sub| !sub.unanswered.is_empty());
            if !self.streams.iter().any(waits) && self.streams.iter().all(|open| open.session.deadline().is_none()) {
                return;
            }
        }
        self.fail("it never settles");
    }

    /// Checks that in the end every client has all that it wants of what is in force, without a refusal.
    fn check_end(&self) {
        for open in &self.streams {
            for (kind, sub) in &open.model.subs {
                if !sub.is_right(*kind, self.variant, &self.truth) {
                    let target = sub.target(*kind, &self.truth);
                    self.fail(&format!("stream {}: {kind:?} should have {target:?} in the end: {sub:?}", open.number));
                }
            }
        }
        // A stream without subscriptions runs nothing.
        if self.streams.iter().any(|open| open.model.subs.is_empty()) {
            return;
        }
        let report = self.fleet.report();
        let refused: Vec<_> = report[0].types.iter().filter(|(_, status)| status.refused.is_some()).collect();
        if !refused.is_empty() {
            self.fail(&format!("everything was accepted in the end, but {refused:?}"));
        }
        if report[0].revision.as_ref() != Some(self.snapshot.revision()) {
            self.fail("the node is not said to run what is in force");
        }
    }
}

const fn type_of(kind: Kind) -> ResourceType {
    match kind {
        Kind::Secret => ResourceType::Secret,
        Kind::Cluster => ResourceType::Cluster,
        Kind::Endpoints => ResourceType::Endpoints,
        Kind::Extension => ResourceType::ExtensionConfig,
        Kind::Listener => ResourceType::Listener,
        Kind::Routes => ResourceType::RouteConfiguration,
        Kind::Hosts => ResourceType::VirtualHost,
    }
}

fn to_session(request: Request) -> session::Request {
    let wish = match request.wish {
        Wish::All { names, version } => session::Wish::All { names, version },
        Wish::Changes { subscribe, unsubscribe, initial } => session::Wish::Changes { subscribe, unsubscribe, initial },
    };
    let error = request.refuses.map(|named| format!("no: {}", named.join(" ")));
    session::Request { kind: type_of(request.kind), nonce: request.nonce, error, wish }
}

fn from_session(response: &session::Response) -> Response {
    let content = &response.content;
    let kind = *Kind::all(Variant::Delta).iter().find(|kind| type_of(**kind) == content.kind).unwrap();
    let resource = |resource: &Arc<Resource>| wire::Resource {
        name: resource.name.clone(),
        version: resource.version.to_string(),
        content: decoded(kind, &resource.body.value),
        aliases: content.aliases.get(&resource.name).into_iter().flatten().cloned().collect(),
    };
    Response {
        kind,
        nonce: response.nonce.clone(),
        version: content.version.to_string(),
        resources: content.resources.iter().map(resource).collect(),
        removed: content.removed.clone(),
        vacant: content.vacant.clone(),
        crossed: false,
        target: Contents::new(),
        stands_for: Contents::new(),
    }
}

fn assemble(all: &BTreeMap<Kind, Contents>) -> Arc<Offers> {
    let each = all.iter().flat_map(|(kind, named)| named.iter().map(|(name, content)| (*kind, name, content)));
    let encoded: Vec<_> = each.map(|(kind, name, content)| (type_of(kind), name, encoded(kind, content))).collect();
    let items: Vec<_> =
        encoded.iter().map(|(kind, name, content)| (*kind, name.as_str(), content.as_slice())).collect();
    Offers::of(Arc::new(assembled(&items)))
}

fn encoded(kind: Kind, content: &str) -> Vec<u8> {
    if kind != Kind::Hosts {
        return content.as_bytes().to_vec();
    }
    let (label, domains) = hosts::parts(content);
    let domains = domains.into_iter().map(str::to_owned).collect();
    VirtualHost { name: label.to_owned(), domains, ..VirtualHost::default() }.encode_to_vec()
}

fn decoded(kind: Kind, body: &[u8]) -> String {
    if kind != Kind::Hosts {
        return String::from_utf8(body.to_vec()).unwrap();
    }
    let host = VirtualHost::decode(body).unwrap();
    hosts::content(&host.name, &host.domains.iter().map(String::as_str).collect::<Vec<_>>())
}

//! A client without a socket: it keeps its subscriptions, answers responses and lets time pass.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use postern_compile::snapshot::{Resource, ResourceType};
use postern_deliver::xds::{
    Offers,
    content::Variant,
    session::{Event, Memory, Reaction, Request, Response, Session, Wish},
};
pub(crate) use postern_fixtures::{Item, assembled};

pub(crate) const BOTH: [Variant; 2] = [Variant::StateOfTheWorld, Variant::Incremental];

pub(crate) struct Client {
    pub(crate) session: Session,
    pub(crate) now: Instant,
    variant: Variant,
    names: BTreeMap<ResourceType, Vec<String>>,
    /// The latest nonce of each type.
    nonces: BTreeMap<ResourceType, String>,
}

impl Client {
    pub(crate) fn new(variant: Variant) -> Self {
        Self::of(variant, 1, Memory::default())
    }

    /// A client of a stream with this number, and of a node with this memory.
    pub(crate) fn of(variant: Variant, stream: u64, memory: Memory) -> Self {
        let session = Session::new(variant, stream, memory);
        Self { session, now: Instant::now(), variant, names: BTreeMap::new(), nonces: BTreeMap::new() }
    }

    /// A client that was served a snapshot and accepted all that it subscribed to.
    pub(crate) fn served(variant: Variant, snapshot: &Arc<Offers>, wanted: &[(ResourceType, &[&str])]) -> Self {
        let mut client = Self::new(variant);
        client.publish(snapshot);
        for (kind, names) in wanted {
            let responses = client.subscribe(*kind, names);
            client.accept_all(responses);
        }
        client
    }

    /// Accepts responses, and those that follow from it.
    pub(crate) fn accept_all(&mut self, responses: Vec<Response>) {
        let mut waiting = responses;
        while let Some(response) = waiting.pop() {
            waiting.extend(self.ack(&response).responses);
        }
    }

    pub(crate) fn publish(&mut self, snapshot: &Arc<Offers>) -> Vec<Response> {
        self.publish_events(snapshot).responses
    }

    pub(crate) fn publish_events(&mut self, snapshot: &Arc<Offers>) -> Reaction {
        let reaction = self.session.on_snapshot(snapshot.revision().clone(), Arc::clone(snapshot), self.now);
        self.note(&reaction);
        reaction
    }

    /// State of the world: replaces the names. Incremental: adds names.
    pub(crate) fn subscribe(&mut self, kind: ResourceType, names: &[&str]) -> Vec<Response> {
        self.names.insert(kind, owned(names));
        self.request(kind, "", None, names)
    }

    pub(crate) fn unsubscribe(&mut self, kind: ResourceType, names: &[&str]) -> Vec<Response> {
        let wish = Wish::Changes { subscribe: Vec::new(), unsubscribe: owned(names), initial: BTreeMap::new() };
        self.send(Request { kind, nonce: String::new(), error: None, wish }).responses
    }

    /// Reconnects with what an earlier stream brought.
    pub(crate) fn resume(&mut self, kind: ResourceType, names: &[&str], had: &[(&str, &str)]) -> Reaction {
        self.names.insert(kind, owned(names));
        let initial = had.iter().map(|(name, version)| ((*name).to_owned(), (*version).to_owned())).collect();
        let wish = Wish::Changes { subscribe: owned(names), unsubscribe: Vec::new(), initial };
        self.send(Request { kind, nonce: String::new(), error: None, wish })
    }

    pub(crate) fn ack(&mut self, response: &Response) -> Reaction {
        let names = self.names[&response.kind()].clone();
        self.answer(response, None, &names)
    }

    pub(crate) fn nack(&mut self, response: &Response, message: &str) -> Reaction {
        let names = self.names[&response.kind()].clone();
        self.answer(response, Some(message), &names)
    }

    /// Answers a response and changes the names.
    pub(crate) fn answer_with(&mut self, response: &Response, error: Option<&str>, names: &[&str]) -> Reaction {
        self.names.insert(response.kind(), owned(names));
        self.answer(response, error, &owned(names))
    }

    fn answer(&mut self, response: &Response, error: Option<&str>, names: &[String]) -> Reaction {
        let wish = match self.variant {
            Variant::StateOfTheWorld => {
                let version = if error.is_some() { String::new() } else { response.content.version.to_string() };
                Wish::All { names: names.to_vec(), version }
            }
            Variant::Incremental => nothing_more(),
        };
        let error = error.map(str::to_owned);
        self.send(Request { kind: response.kind(), nonce: response.nonce.clone(), error, wish })
    }

    fn note(&mut self, reaction: &Reaction) {
        self.nonces.extend(reaction.responses.iter().map(|response| (response.kind(), response.nonce.clone())));
    }

    /// Sends any request. In the state of the world, a request that only changes names repeats the latest nonce.
    pub(crate) fn request(
        &mut self,
        kind: ResourceType,
        nonce: &str,
        error: Option<&str>,
        names: &[&str],
    ) -> Vec<Response> {
        let latest = self.nonces.get(&kind).filter(|_| self.variant == Variant::StateOfTheWorld);
        let nonce = if nonce.is_empty() { latest.cloned().unwrap_or_default() } else { nonce.to_owned() };
        let wish = match self.variant {
            Variant::StateOfTheWorld => Wish::All { names: owned(names), version: String::new() },
            Variant::Incremental => {
                Wish::Changes { subscribe: owned(names), unsubscribe: Vec::new(), initial: BTreeMap::new() }
            }
        };
        self.send(Request { kind, nonce, error: error.map(str::to_owned), wish }).responses
    }

    pub(crate) fn send(&mut self, request: Request) -> Reaction {
        let kind = request.kind;
        let reaction = self.session.on_request(request, self.now);
        // The protocol's ground rule, on every step of every test.
        let mut nonces: Vec<_> = reaction.responses.iter().map(|response| &response.nonce).collect();
        nonces.dedup();
        assert_eq!(nonces.len(), reaction.responses.len(), "nonces repeat after a request of {kind}");
        self.note(&reaction);
        reaction
    }

    /// Lets time pass.
    pub(crate) fn wait(&mut self, time: Duration) -> Vec<Response> {
        self.now += time;
        match self.session.deadline() {
            Some(deadline) if deadline <= self.now => {
                let reaction = self.session.on_deadline(self.now);
                self.note(&reaction);
                reaction.responses
            }
            _ => Vec::new(),
        }
    }
}

fn nothing_more() -> Wish {
    Wish::Changes { subscribe: Vec::new(), unsubscribe: Vec::new(), initial: BTreeMap::new() }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A snapshot of these resources. Its revision is their digest.
pub(crate) fn snapshot(resources: &[Item<'_>]) -> Arc<Offers> {
    Offers::of(Arc::new(assembled(resources)))
}

/// Resources of one type, written as `a=1 b=2`.
pub(crate) fn all<'a>(kind: ResourceType, text: &'a str) -> Vec<Item<'a>> {
    text.split_whitespace()
        .filter_map(|item| item.split_once('='))
        .map(|(name, it)| (kind, name, it.as_bytes()))
        .collect()
}

/// A snapshot of clusters only.
pub(crate) fn clusters(text: &str) -> Arc<Offers> {
    snapshot(&all(ResourceType::Cluster, text))
}

/// A snapshot of endpoints only.
pub(crate) fn endpoints(text: &str) -> Arc<Offers> {
    snapshot(&all(ResourceType::Endpoints, text))
}

/// The responses as text: type, resources with their content, and removed names with a `-`.
pub(crate) fn told(responses: &[Response]) -> Vec<String> {
    responses.iter().map(tell).collect()
}

pub(crate) fn tell(response: &Response) -> String {
    let content = &response.content;
    let shown = |resource: &Arc<Resource>| {
        let text = String::from_utf8_lossy(&resource.body.value).into_owned();
        format!("{}={text}", resource.name)
    };
    let resources = content.resources.iter().map(shown);
    let removed = content.removed.iter().map(|name| format!("-{name}"));
    let items: Vec<_> = resources.chain(removed).collect();
    format!("{} {}", content.kind, items.join(" ")).trim_end().to_owned()
}

pub(crate) fn only(responses: Vec<Response>) -> Response {
    assert_eq!(responses.len(), 1, "{:?}", told(&responses));
    responses.into_iter().next().unwrap()
}

pub(crate) const SILENCE: [&str; 0] = [];

/// The events, without those for a settled or unsettled node.
pub(crate) fn outcomes(reaction: &Reaction) -> Vec<&'static str> {
    let name = |event: &Event| match event {
        Event::Acked { .. } => Some("acked"),
        Event::Restored { .. } => Some("restored"),
        Event::Nacked { .. } => Some("nacked"),
        Event::Warned { .. } => Some("warned"),
        Event::Settled { .. } | Event::Unsettled => None,
    };
    reaction.events.iter().filter_map(name).collect()
}

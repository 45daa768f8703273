//! What a step sees of a message, and what it may leave for later steps. Nothing here knows of policies or chains.

use std::{collections::BTreeMap, sync::Arc};

use sha2::{Digest, Sha256};

use crate::{
    agent::Health,
    ask::Answer,
    budget::Budget,
    cel::{AttributeError, Map},
    consumers::Consumer,
    directory::Directory,
    edits::{Edits, Values},
    event::{Inputs, Needs, Phase},
    host::Host,
    rare::Rare,
    verdict::HeaderPair,
};

/// What steps have found out about a message so far. A response starts with the facts of its request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    pub(crate) consumer: Option<Arc<Consumer>>,
    /// The claims of the caller's token.
    pub(crate) claims: Option<Arc<Map>>,
    /// Rarely used facts, boxed to keep `Facts` small.
    rare: Rare<RareFacts>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct RareFacts {
    pub(crate) metadata: BTreeMap<Arc<str>, Arc<str>>,
    /// The edits of the response that request steps asked for.
    pub(crate) response: Edits,
    /// Headers to add to our own answers to this request, unless they have them already.
    pub(crate) answers: Vec<HeaderPair>,
}

impl Facts {
    /// The rarely used facts. Created if absent.
    pub(crate) fn rare(&mut self) -> &mut RareFacts {
        self.rare.make()
    }

    /// Whether no request step asked for an edit of the response.
    #[inline]
    pub(crate) fn leaves_response(&self) -> bool {
        self.rare.get().is_none_or(|rare| rare.response.is_empty())
    }

    pub(crate) fn take_response_edits(&mut self) -> Edits {
        self.rare.get_mut().map(|rare| std::mem::take(&mut rare.response)).unwrap_or_default()
    }

    pub(crate) fn answers(&self) -> &[HeaderPair] {
        self.rare.get().map_or(&[], |rare| &rare.answers)
    }

    pub(crate) fn metadatum(&self, name: &str) -> Option<&Arc<str>> {
        self.rare.get()?.metadata.get(name)
    }

    pub(crate) fn metadata(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        self.rare.get().into_iter().flat_map(|rare| &rare.metadata)
    }
}

/// What the steps of a chain share while they decide on one message. Each step sees what earlier ones changed.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    /// What steps look up in the plan.
    pub(crate) directory: &'a Directory,
    pub(crate) phase: Phase,
    pub(crate) route: &'a Arc<str>,
    /// The step's place in the chain.
    pub(crate) step: usize,
    /// The step's name.
    pub(crate) name: &'a Arc<str>,
    pub(crate) inputs: &'a Inputs,
    /// The request's budget.
    pub(crate) budget: &'a Budget,
    pub(crate) health: &'a Health,
    /// The inputs that the host has been asked for so far.
    pub(crate) given: Needs,
    pub(crate) edits: &'a mut Edits,
    /// The edits that were made to the request. Only for a response.
    pub(crate) request_edits: &'a Edits,
    pub(crate) facts: &'a mut Facts,
    /// The answer to what the step asked for.
    pub(crate) answer: &'a mut Option<Answer>,
    pub(crate) host: &'a mut dyn Host,
}

impl Context<'_> {
    /// The values of a request header as the caller sent them, or as earlier steps left them.
    pub(crate) fn request_header(&self, name: &str) -> Values<'_> {
        self.edits.sent(&self.inputs.request_headers, name)
    }

    /// The values of a request header as the upstream gets them: without the caller's values of a header that only
    /// steps may set.
    pub(crate) fn forwarded_header(&self, name: &str) -> Values<'_> {
        self.edits.values(&self.inputs.request_headers, name)
    }

    /// The body, as earlier steps left it.
    pub(crate) fn body(&self) -> &[u8] {
        self.edits.body().unwrap_or(&self.inputs.body)
    }

    /// Adds to the budget what a step that reads the body may cost more. Call it before reading.
    #[cold]
    #[inline(never)]
    pub(crate) fn allow_body(&self) {
        self.budget.allow_body(self.body().len());
    }

    /// Random bytes for this step alone: two steps of one chain must not make the same choices or ids.
    pub(crate) fn random(&self) -> [u8; 16] {
        random(self.inputs, self.step)
    }

    /// The consumer that the caller has proved to be.
    pub(crate) fn consumer(&self) -> Result<&Arc<Consumer>, AttributeError> {
        self.facts.consumer.as_ref().ok_or(AttributeError::Absent)
    }
}

/// The random bytes of a step, by its index in the chain.
pub(crate) fn random(inputs: &Inputs, place: usize) -> [u8; 16] {
    let digest = Sha256::new().chain_update(inputs.random).chain_update(place.to_le_bytes()).finalize();
    digest.first_chunk().copied().unwrap_or_default()
}

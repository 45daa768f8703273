//! The cases, by name: what each has in front of its upstream, and what it is compared with.

use super::{filters, policies::Policies, server::Protocol, subject::Subject, tokens::Tokens};

/// The case that the others are compared with.
pub(super) const NO_FILTER: &str = "no-filter";

/// The case that those with tokens are compared with.
const NO_FILTER_TOKEN: &str = "no-filter-token";

/// One line of the result.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) subject: Subject,
    /// How many routes Envoy has, and the plan if there is one.
    pub(super) routes: usize,
    /// The case whose cost is subtracted. References themselves have none.
    pub(super) reference: Option<&'static str>,
    pub(super) meaning: Meaning,
    pub(super) tokens: Tokens,
}

/// What a case does to requests: it is checked before anything is measured, so that no case is fast by doing nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Meaning {
    /// What a request without a key and a token is answered with.
    pub(super) without_credentials: u16,
    /// Whether the key is taken off and [`policies::GUARD`](super::policies::GUARD) is set on the way to the upstream.
    pub(super) edits: bool,
}

impl Meaning {
    const NONE: Self = Self { without_credentials: 200, edits: false };
    const KEY: Self = Self { without_credentials: 401, edits: false };
    const KEY_AND_HEADERS: Self = Self { without_credentials: 401, edits: true };
}

impl Case {
    fn new(name: &'static str, subject: Subject, meaning: Meaning) -> Self {
        Self { name, subject, routes: 1, reference: Some(NO_FILTER), meaning, tokens: Tokens::None }
    }

    /// A case with nothing in front of the upstream.
    fn reference(name: &'static str, routes: usize) -> Self {
        Self { routes, reference: None, ..Self::new(name, Subject::Nothing, Meaning::NONE) }
    }

    /// Adds tokens to the requests. They make a request longer, so the reference has them too.
    fn with_tokens(self, tokens: Tokens) -> Self {
        Self { tokens, reference: self.reference.map(|_| NO_FILTER_TOKEN), ..self }
    }

    fn with_routes(self, routes: usize, reference: &'static str) -> Self {
        Self { routes, reference: Some(reference), ..self }
    }
}

/// All cases, in the order in which they are measured and shown.
pub(super) fn all() -> Vec<Case> {
    let three = |name| Case::new(name, Subject::Policies(Policies::Three), Meaning::KEY_AND_HEADERS);
    let jwt = |name, subject, tokens| Case::new(name, subject, Meaning::KEY).with_tokens(tokens);
    let five = |name, subject| Case::new(name, subject, Meaning::KEY_AND_HEADERS).with_tokens(Tokens::Same);
    vec![
        Case::reference(NO_FILTER, 1),
        Case::new("wasm-noop", Subject::Noop, Meaning::NONE),
        Case::new("wasm-key", Subject::Policies(Policies::Key), Meaning::KEY),
        three("wasm-three"),
        Case::new("wasm-three-logged", Subject::Policies(Policies::ThreeLogged), Meaning::KEY_AND_HEADERS),
        Case::new("wasm-when", Subject::Policies(Policies::When), Meaning::KEY),
        Case::new("wasm-no-chain", Subject::Policies(Policies::None), Meaning::NONE),
        Case::reference("no-filter-10-routes", 10),
        three("wasm-three-10-routes").with_routes(10, "no-filter-10-routes"),
        Case::reference("no-filter-1000-routes", 1000),
        three("wasm-three-1000-routes").with_routes(1000, "no-filter-1000-routes"),
        Case::reference("no-filter-10000-routes", 10_000),
        three("wasm-three-10000-routes").with_routes(10_000, "no-filter-10000-routes"),
        Case::new("native-three", Subject::Native(filters::native_three), Meaning::KEY_AND_HEADERS),
        Case::new("rbac", Subject::Native(filters::rbac), Meaning { without_credentials: 403, edits: false }),
        Case::new("lua-two", Subject::Native(filters::lua_two), Meaning::KEY_AND_HEADERS),
        Case::new("ext_authz-three", Subject::Server(Protocol::ExtAuthz, Policies::Three), Meaning::KEY_AND_HEADERS),
        Case::new("ext_proc-three", Subject::Server(Protocol::ExtProc, Policies::Three), Meaning::KEY_AND_HEADERS),
        Case::reference(NO_FILTER_TOKEN, 1).with_tokens(Tokens::Same),
        jwt("wasm-jwt", Subject::Policies(Policies::Jwt), Tokens::New),
        jwt("wasm-jwt-cached", Subject::Policies(Policies::Jwt), Tokens::Same),
        jwt("native-jwt", Subject::Native(filters::native_jwt), Tokens::New),
        jwt("native-jwt-cached", Subject::Native(filters::native_jwt_cached), Tokens::Same),
        five("wasm-five", Subject::Policies(Policies::Five)),
        five("native-five", Subject::Native(filters::native_five)),
        five("ext_authz-five", Subject::Server(Protocol::ExtAuthz, Policies::Five)),
    ]
}

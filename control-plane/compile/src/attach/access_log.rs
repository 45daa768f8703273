//! Attachment of AccessLogs: for each backend, the requests that it gets. `to` and `from` are merged independently.

use std::collections::BTreeMap;

use postern_model::{AccessLog, LogBackendRef, LogEntry, Resource, TargetRef};

use super::{scope::Scope, source::Source};

/// An entry of an AccessLog: some requests, and the backends that log them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    /// The requests that the entry selects.
    pub which: Which,
    /// Earlier entries. Requests that one of them selects are not logged by this entry.
    pub unless: Vec<Which>,
    /// The names of the backends, without duplicates.
    pub backends: Vec<String>,
    /// Whether it is an entry of `from`: it is for incoming requests alone.
    pub incoming: bool,
}

/// A condition on requests. Every part that is there must be met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Which {
    /// The route of the request.
    pub route: Option<String>,
    /// The service that the request goes to.
    pub service: Option<String>,
    /// The source of the request.
    pub source: Option<Source>,
}

/// All entries, by priority, `to` before `from`. `None` if no AccessLog concerns the nodes: then the default log
/// applies.
pub fn access_logs(scope: &Scope<'_>) -> Option<Vec<Logged>> {
    if scope.access_logs.is_empty() {
        return None;
    }
    let mut found = direction(
        scope,
        false,
        |log| &log.to,
        |_, target| Which {
            route: target.route().map(str::to_owned),
            service: target.service().map(str::to_owned),
            source: None,
        },
    );
    found.extend(direction(
        scope,
        true,
        |log| &log.from,
        |log, target| Which { route: None, service: None, source: Source::of(target, log.mesh()) },
    ));
    Some(found)
}

fn direction(
    scope: &Scope<'_>,
    incoming: bool,
    entries: impl Fn(&AccessLog) -> &[LogEntry],
    which: impl Fn(&Resource<AccessLog>, &TargetRef) -> Which,
) -> Vec<Logged> {
    let (mut found, mut earlier): (Vec<Logged>, Vec<Which>) = (Vec::new(), Vec::new());
    for log in &scope.access_logs {
        for entry in entries(&log.spec) {
            let mut which = which(log, &entry.target_ref);
            let attached = log.spec.target_ref.route().map(str::to_owned);
            if attached.is_some() && which.route.is_some() && attached != which.route {
                continue;
            }
            which.route = which.route.or(attached);
            let names: BTreeMap<_, ()> = entry.backends.iter().map(|LogBackendRef { name }| (name, ())).collect();
            let backends = names.into_keys().cloned().collect();
            found.push(Logged { which: which.clone(), unless: earlier.clone(), backends, incoming });
            earlier.push(which);
        }
    }
    found
}

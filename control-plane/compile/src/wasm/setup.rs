//! What a VM finds around it when it starts.

use std::{collections::BTreeSet, time::Duration};

use postern_engine::Placement;

use super::{Limits, LogLevel, Properties, SharedData};

/// The surroundings of a VM. The default is an Envoy that has every cluster, at the start of 1970.
#[derive(Debug, Clone)]
pub struct Setup {
    /// What the module may take.
    pub limits: Limits,
    /// Shared data: give several VMs clones of one handle to make them workers of one Envoy.
    pub shared_data: SharedData,
    /// What the clock shows first, since 1970; see [`Vm::set_time`](super::Vm::set_time).
    pub time: Duration,
    /// The level that the module is told. Lines below it are kept all the same.
    pub log_level: LogLevel,
    /// Properties that every context has: `node`, `plugin_name` and the like.
    pub properties: Properties,
    /// Where HTTP callouts can go.
    pub clusters: Clusters,
    /// What a pause in the headers' callback does to the rest of the message.
    pub headers_pause: HeadersPause,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            shared_data: SharedData::default(),
            time: Duration::ZERO,
            log_level: LogLevel::Info,
            // As in a listener of a Gateway.
            properties: Properties::new().with(&["plugin_root_id"], Placement::Gateway.name()),
            clusters: Clusters::Any,
            headers_pause: HeadersPause::HoldsBody,
        }
    }
}

/// Which clusters there are: a callout to another is refused as a bad argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Clusters {
    /// Every name is one.
    Any,
    /// These.
    Only(BTreeSet<String>),
}

impl Clusters {
    pub(super) fn has(&self, name: &[u8]) -> bool {
        match self {
            Self::Any => true,
            Self::Only(names) => std::str::from_utf8(name).is_ok_and(|name| names.contains(name)),
        }
    }
}

/// The plugin's `allow_on_headers_stop_iteration`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadersPause {
    /// Not set: body and trailers reach the filter only once the stream goes on.
    HoldsBody,
    /// Set: they are shown to the filter meanwhile, so that it can wait for them.
    ShowsBody,
}

//! Where in an Envoy a filter stands. It decides whether the control plane knows the routes that the filter sees.

/// The place of a filter in a listener's chain of HTTP filters. The control plane puts it into the root id of the
/// filter's configuration, which is also the name under which a listener subscribes to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// In a listener of a Gateway. The control plane made its routes and has checked that no edit of a header can
    /// change which of them a request takes.
    Gateway,
    /// In a listener of the Envoy's own. Nobody but Envoy knows what its routes match on.
    Overlay,
    /// In a listener of the Envoy's own, directly before its router: compares the route that is taken with the one whose
    /// chain ran.
    Verify,
}

impl Placement {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Gateway, Self::Overlay, Self::Verify];

    /// The root id, and the name that listeners subscribe to.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gateway => "postern-gateway",
            Self::Overlay => "postern",
            Self::Verify => "postern-verify",
        }
    }

    /// The placement with this root id. An unknown root id is `Overlay`, which trusts its routes the least.
    pub fn of(root_id: &[u8]) -> Self {
        let known = Self::ALL.into_iter().find(|placement| placement.name().as_bytes() == root_id);
        known.unwrap_or(Self::Overlay)
    }
}

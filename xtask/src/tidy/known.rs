//! The cycles between modules that are known and not untied yet. This list may only shrink: `cargo xtask tidy` fails when a
//! module joins a cycle without being here, and when one that is here is in none any more.

/// Sibling modules that need each other.
#[derive(Debug)]
pub(crate) struct Known {
    /// The root of the crate.
    pub(crate) root: &'static str,
    /// Their parent; `crate` for the root.
    pub(crate) level: &'static str,
    pub(crate) modules: &'static [&'static str],
}

/// Its modules become crates whose dependencies point one way, which unties most of these.
const CONTROL_PLANE: &str = "control-plane/src/lib.rs";

/// All of them, by crate and level.
pub(crate) const KNOWN: &[Known] = &[
    Known {
        root: CONTROL_PLANE,
        level: "crate",
        modules: &[
            "admin",
            "attach",
            "catalogue",
            "cli",
            "condition",
            "control_plane",
            "difference",
            "discovery",
            "eval",
            "explain",
            "expression",
            "files",
            "fleet",
            "gate",
            "http",
            "journal",
            "jwk",
            "keys",
            "lifecycle",
            "lint",
            "lower",
            "model",
            "owner",
            "pipeline",
            "protobuf_json",
            "publication",
            "redirect",
            "reference",
            "releases",
            "rest",
            "review",
            "revision",
            "rollout",
            "route_match",
            "schema",
            "serve",
            "snapshot",
            "source",
            "store",
            "user_test",
            "validate",
            "xds",
        ],
    },
    Known { root: CONTROL_PLANE, level: "discovery", modules: &["registry", "report", "session"] },
    Known {
        root: CONTROL_PLANE,
        level: "model",
        modules: &[
            "access_log",
            "agent",
            "build",
            "consumer",
            "envoy_resource",
            "gateway",
            "issuer",
            "kinds",
            "parse",
            "pem",
            "request_match",
            "route",
            "route_policy",
            "service",
            "settings",
            "timeout",
            "traffic_permission",
            "upstream_tls",
        ],
    },
    Known { root: CONTROL_PLANE, level: "protobuf_json", modules: &["message", "scalar", "well_known"] },
    Known {
        root: CONTROL_PLANE,
        level: "snapshot",
        modules: &["cluster", "edge", "path", "request_match", "route", "timeout"],
    },
    Known {
        root: CONTROL_PLANE,
        level: "wasm",
        modules: &["callouts", "host", "logging", "memory", "metrics", "properties", "setup", "shared_data", "stream"],
    },
    Known { root: CONTROL_PLANE, level: "xds::service", modules: &["record", "stream"] },
];

//! What a case has in Envoy's filter chain, as values for the bootstrap. Starts nothing.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use serde_json::Value;

use super::{
    filters,
    policies::{Code, Policies},
    server::Protocol,
};
use crate::control_plane::from_environment;

/// What is measured.
#[derive(Debug, Clone, Copy)]
pub(super) enum Subject {
    /// Nothing: the reference.
    Nothing,
    /// A Wasm filter that does nothing: what Envoy asks for any.
    Noop,
    /// Our filter with a plan.
    Policies(Policies),
    /// Envoy's own filters.
    Native(fn() -> Result<Vec<Value>>),
    /// A filter that asks a server, and what that one decides by.
    Server(Protocol, Policies),
}

impl Subject {
    /// The HTTP filters, in front of the router. Files that they need go into `directory`.
    pub(super) fn filters(self, routes: usize, directory: &Path) -> Result<Vec<Value>> {
        Ok(match self {
            Self::Nothing => vec![],
            Self::Noop => {
                let path = directory.join("noop.wasm");
                fs::write(&path, wat::parse_str(NOOP).context("the filter that does nothing")?)?;
                vec![filters::wasm(&path, &[])]
            }
            Self::Policies(policies) => {
                let code = Code::read(&from_environment("POSTERN_FILTER")?)?;
                vec![filters::wasm(code.path(), &policies.plan(routes, code.code())?)]
            }
            Self::Native(filters) => filters()?,
            Self::Server(Protocol::ExtAuthz, _) => vec![filters::ext_authz()],
            Self::Server(Protocol::ExtProc, _) => vec![filters::ext_proc()],
        })
    }

    /// The server that must run beside Envoy.
    pub(super) fn server(self) -> Option<(Protocol, Policies)> {
        match self {
            Self::Server(protocol, policies) => Some((protocol, policies)),
            Self::Nothing | Self::Noop | Self::Policies(_) | Self::Native(_) => None,
        }
    }
}

/// A module with the callbacks of our filter, all empty. Envoy calls what a module exports, so this measures the cost
/// of the calls.
const NOOP: &str = r#"(module
  (memory (export "memory") 1)
  (func (export "proxy_abi_version_0_2_1"))
  (func (export "proxy_on_memory_allocate") (param i32) (result i32) (i32.const 1024))
  (func (export "proxy_on_context_create") (param i32 i32))
  (func (export "proxy_on_configure") (param i32 i32) (result i32) (i32.const 1))
  (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) (i32.const 0))
  (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32) (i32.const 0))
  (func (export "proxy_on_delete") (param i32)))"#;

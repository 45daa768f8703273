//! HTTP filters as Envoy's configuration names them. All that check a key, limit and edit mean the same as
//! [`policies`](super::policies).

use std::path::Path;

use anyhow::Result;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use postern_engine::Placement;
use postern_proto::configuration;
use serde_json::{Value, json};

use super::{
    policies::{CONSUMER, GUARD, KEY, KEY_HEADER, LIMIT_PER_SECOND},
    tokens::{AUDIENCE, ISSUER, ROLE, key_set},
};

/// The cluster of the server that a filter may ask.
pub(super) const SERVER: &str = "server";

/// A Wasm filter from a file, as the control plane configures ours.
pub(super) fn wasm(code: &Path, plan: &[u8]) -> Value {
    let configuration = json!({
        "@type": configuration::TYPE_URL,
        "secret": { "inline_bytes": BASE64_STANDARD.encode(plan) },
    });
    filter(
        "wasm.v3.Wasm",
        json!({ "config": {
            "name": Placement::Gateway.name(),
            "root_id": Placement::Gateway.name(),
            "configuration": configuration,
            "failure_policy": "FAIL_RELOAD",
            "vm_config": {
                "vm_id": "postern",
                "runtime": "envoy.wasm.runtime.v8",
                "code": { "local": { "filename": code } },
            },
        } }),
    )
}

/// Envoy's own key check, limit and header edits.
pub(super) fn native_three() -> Result<Vec<Value>> {
    Ok(vec![key(), limit(), headers()])
}

/// Envoy's own check of tokens, each verified.
pub(super) fn native_jwt() -> Result<Vec<Value>> {
    Ok(vec![jwt(json!({}))?])
}

/// Like [`native_jwt`], with its cache of verified tokens.
pub(super) fn native_jwt_cached() -> Result<Vec<Value>> {
    Ok(vec![jwt(json!({ "jwt_cache_config": { "jwt_cache_size": 1024 } }))?])
}

/// Key, cached token, role, limit and headers.
pub(super) fn native_five() -> Result<Vec<Value>> {
    let token = jwt(json!({ "jwt_cache_config": { "jwt_cache_size": 1024 }, "payload_in_metadata": "payload" }))?;
    Ok(vec![key(), token, role(), limit(), headers()])
}

fn key() -> Value {
    filter(
        "api_key_auth.v3.ApiKeyAuth",
        json!({ "credentials": [{ "key": KEY, "client": CONSUMER }], "key_sources": [{ "header": KEY_HEADER }] }),
    )
}

fn jwt(options: Value) -> Result<Value> {
    let mut provider = json!({
        "issuer": ISSUER,
        "audiences": [AUDIENCE],
        "forward": true,
        "local_jwks": { "inline_string": key_set()?.to_string() },
    });
    if let (Some(provider), Value::Object(options)) = (provider.as_object_mut(), options) {
        provider.extend(options);
    }
    let rule = json!({ "match": { "prefix": "/" }, "requires": { "provider_name": "bench" } });
    Ok(filter("jwt_authn.v3.JwtAuthentication", json!({ "providers": { "bench": provider }, "rules": [rule] })))
}

/// Envoy's RBAC on what its check of tokens left in the metadata.
fn role() -> Value {
    let (claim, role) = ROLE;
    let metadata = json!({
        "filter": "envoy.filters.http.jwt_authn",
        "path": [{ "key": "payload" }, { "key": claim }],
        "value": { "string_match": { "exact": role } },
    });
    let policy = json!({ "permissions": [{ "any": true }], "principals": [{ "metadata": metadata }] });
    filter("rbac.v3.RBAC", json!({ "rules": { "action": "ALLOW", "policies": { "role": policy } } }))
}

fn limit() -> Value {
    let always = |key: &str| json!({ "runtime_key": key, "default_value": { "numerator": 100 } });
    filter(
        "local_ratelimit.v3.LocalRateLimit",
        json!({
            "stat_prefix": "bench",
            "token_bucket": {
                "max_tokens": LIMIT_PER_SECOND,
                "tokens_per_fill": LIMIT_PER_SECOND,
                "fill_interval": "1s",
            },
            "filter_enabled": always("limit_enabled"),
            "filter_enforced": always("limit_enforced"),
        }),
    )
}

fn headers() -> Value {
    let (name, value) = GUARD;
    filter(
        "header_mutation.v3.HeaderMutation",
        json!({ "mutations": { "request_mutations": [
                { "remove": KEY_HEADER },
                { "append": {
                    "header": { "key": name, "value": value },
                    "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
                } },
            ] } }),
    )
}

/// Envoy's RBAC with a condition on one header.
pub(super) fn rbac() -> Result<Vec<Value>> {
    let permission = json!({ "header": { "name": KEY_HEADER, "string_match": { "exact": KEY } } });
    let policy = json!({ "permissions": [permission], "principals": [{ "any": true }] });
    Ok(vec![filter("rbac.v3.RBAC", json!({ "rules": { "action": "ALLOW", "policies": { "key": policy } } }))])
}

/// Key check and header edits in Lua.
pub(super) fn lua_two() -> Result<Vec<Value>> {
    let (name, value) = GUARD;
    let source = format!(
        r#"
local consumers = {{ ["{KEY}"] = "{CONSUMER}" }}
function envoy_on_request(handle)
  local headers = handle:headers()
  local key = headers:get("{KEY_HEADER}")
  if key == nil or consumers[key] == nil then
    handle:respond({{ [":status"] = "401" }}, "a valid API key is required")
    return
  end
  headers:remove("{KEY_HEADER}")
  headers:replace("{name}", "{value}")
end
"#
    );
    Ok(vec![filter("lua.v3.Lua", json!({ "default_source_code": { "inline_string": source } }))])
}

/// A call to the server for every request.
pub(super) fn ext_authz() -> Value {
    filter("ext_authz.v3.ExtAuthz", json!({ "transport_api_version": "V3", "grpc_service": server() }))
}

/// A stream to the server for every request, with the request's headers only.
pub(super) fn ext_proc() -> Value {
    filter(
        "ext_proc.v3.ExternalProcessor",
        json!({
            "grpc_service": server(),
            "message_timeout": "5s",
            "processing_mode": {
                "request_header_mode": "SEND",
                "response_header_mode": "SKIP",
                "request_trailer_mode": "SKIP",
                "response_trailer_mode": "SKIP",
            },
        }),
    )
}

/// The router, with which every chain ends.
pub(super) fn router() -> Value {
    filter("router.v3.Router", json!({}))
}

/// The time-out is far from any time that a busy machine needs: a failure is a failure.
fn server() -> Value {
    json!({ "envoy_grpc": { "cluster_name": SERVER }, "timeout": "5s" })
}

/// `message` is the filter's own type after `envoy.extensions.filters.http.`.
fn filter(message: &str, mut config: Value) -> Value {
    let name = message.split('.').next().unwrap_or_default();
    if let Some(fields) = config.as_object_mut() {
        fields
            .insert("@type".to_owned(), format!("type.googleapis.com/envoy.extensions.filters.http.{message}").into());
    }
    json!({ "name": format!("envoy.filters.http.{name}"), "typed_config": config })
}

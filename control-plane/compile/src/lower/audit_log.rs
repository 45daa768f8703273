//! Lowers `auditLog`.

use postern_base::diagnostic::{push_field, quote, suggestion};
use postern_engine::{
    Phase,
    cel::Attribute,
    policy::audit_log::{RESERVED, SAMPLE_OF},
};
use postern_model::Protocol;
use postern_proto::plan::v1::{AuditCollector, AuditField, AuditGrpcCollector, AuditLog, step::Policy};

use super::{Lowering, Place, policies::LowerError};
use crate::{expression::Compilation, params::AuditLogParams};

/// The largest number of `fields`, and of `headers`; more would not fit into a record.
const MOST: usize = 64;

impl Lowering {
    pub(super) fn audit_log(&mut self, place: &Place<'_>, params: &AuditLogParams) -> Result<Policy, LowerError> {
        if let Some(when) = &place.step.step.when {
            let compiled = self.known.condition(when, place.phase.into());
            self.refuse_body(place, "when", &compiled);
        }
        let at_request = params.at == "request";
        if at_request && place.phase == Phase::Response {
            return Err(LowerError::Value("`at: request` cannot be had in a response chain"));
        }
        if params.fields.len() > MOST || params.headers.len() > MOST {
            return Err(LowerError::Value("expected at most 64 `fields` and 64 `headers`"));
        }
        let (log, http, grpc) = (params.to.log, params.to.http.as_ref(), params.to.grpc.as_ref());
        if !log && http.is_none() && grpc.is_none() {
            return Err(LowerError::Value("records go nowhere: expected `to.log: true`, `to.http` or `to.grpc`"));
        }
        let fields = params.fields.iter().map(|(name, text)| self.audit_field(place, name, text)).collect();
        let collector = http.map(|http| AuditCollector {
            service: self.service(place, "params.to.http.service", &http.service),
            path: self.string(&http.path),
        });
        let grpc = grpc.map(|grpc| AuditGrpcCollector { service: self.grpc_service(place, &grpc.service) });
        let redact = &params.redact;
        Ok(Policy::AuditLog(AuditLog {
            sample: of_a_million(params.sample),
            sample_denials: params.sample_denials,
            at_request,
            fields,
            headers: params.headers.iter().map(|name| self.header_name(name)).collect(),
            omit: params.omit.iter().map(|name| self.string(name)).collect(),
            redact_headers: redact.headers.iter().map(|name| self.header_name(name)).collect(),
            redact_query: redact.query.iter().map(|name| self.string(name)).collect(),
            redact_claims: redact.claims.iter().map(|name| self.string(name)).collect(),
            log,
            collector,
            grpc,
        }))
    }

    fn audit_field(&mut self, place: &Place<'_>, name: &str, text: &str) -> AuditField {
        let field = push_field("params.fields".to_owned(), name);
        if RESERVED.contains(&name) {
            self.error(place, &field, format!("{} is a field that records have already", quote(name)));
        }
        let compiled = self.known.any(text, place.phase.into());
        self.refuse_body(place, &field, &compiled);
        AuditField { name: self.string(name), expression: self.intern(place, &field, compiled) }
    }

    /// Refuses expressions that read a body: a record would have to wait for what a caller may send slowly or never.
    fn refuse_body(&mut self, place: &Place<'_>, field: &str, compiled: &Compilation) {
        if compiled.as_ref().is_ok_and(|compiled| compiled.reads(Attribute::RequestBody)) {
            self.error(place, field, "an audit log cannot read `request.body`".to_owned());
        }
    }

    /// The string of a service's name. An error if the service does not exist.
    fn service(&mut self, place: &Place<'_>, field: &str, name: &str) -> u32 {
        if !self.services.contains_key(name) {
            let near = suggestion(name, self.services.keys().map(String::as_str));
            self.error(place, field, format!("unknown service {}{near}", quote(name)));
        }
        self.string(name)
    }

    /// Like [`Self::service`], for a service that must speak gRPC.
    fn grpc_service(&mut self, place: &Place<'_>, name: &str) -> u32 {
        let field = "params.to.grpc.service";
        if self.services.get(name).is_some_and(|protocol| *protocol != Protocol::Http2) {
            self.error(place, field, format!("service {} speaks HTTP/1: expected `protocol: grpc`", quote(name)));
        }
        self.service(place, field, name)
    }
}

/// A percentage in parts per million. It has at most four decimals.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is from 0 to 100")]
fn of_a_million(percent: f64) -> u32 {
    (percent * f64::from(SAMPLE_OF / 100)).round() as u32
}

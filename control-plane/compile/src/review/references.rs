//! References to routes and services that no resource declares. Issuers are checked by lowering.

use std::collections::{BTreeMap, BTreeSet};

use postern_base::diagnostic::{quote, suggestion};
use postern_model::{
    Bundle, Diagnostic, EnvoyResource, LogSink, OUTBOUND_ROUTE, Outbound, Protocol, Resource, Service, Settings,
    TargetRef, Targeted, To, TraceCollector, Tracing,
};

/// An error for each reference to something that does not exist, unless it is `optional`.
pub(super) fn unknown(bundle: &Bundle) -> Vec<Diagnostic> {
    let known = DeclaredNames::of(bundle);
    let mut found = Vec::new();
    for policy in bundle.route_policies.iter().filter(|policy| !policy.spec.refused) {
        known.check(policy, policy.spec.to.iter().map(|entry| &entry.target_ref), &mut found);
    }
    for permission in &bundle.traffic_permissions {
        known.check(permission, [], &mut found);
    }
    known.check_outbound(&bundle.timeouts, &mut found);
    known.check_outbound(&bundle.circuit_breakers, &mut found);
    known.check_outbound(&bundle.retries, &mut found);
    known.check_outbound(&bundle.health_checks, &mut found);
    known.check_outbound(&bundle.virtual_outbounds, &mut found);
    found.extend(selects_nothing(bundle));
    for log in &bundle.access_logs {
        known.check(log, log.spec.to.iter().map(|entry| &entry.target_ref), &mut found);
    }
    found.extend(bundle.tracings.iter().filter_map(|tracing| known.collector(tracing, &bundle.services)));
    for settings in &bundle.settings {
        found.extend(known.log_collectors(settings, &bundle.services));
    }
    found.extend(omits_nothing(bundle));
    found
}

/// An error for each `omit: true` for which no less specific resource in Envoy's format has the type and name.
fn omits_nothing(bundle: &Bundle) -> impl Iterator<Item = Diagnostic> {
    let omitting = bundle.envoy_resources.iter().filter(|raw| raw.spec.omit);
    omitting.filter_map(|raw| {
        let resource = &raw.spec.resource;
        let is_omitted = |other: &&Resource<EnvoyResource>| {
            let is_named =
                other.spec.resource.kind() == resource.kind() && other.spec.resource.name() == resource.name();
            is_named && !other.spec.omit && other.mesh() == raw.mesh() && other.spec.level() < raw.spec.level()
        };
        if bundle.envoy_resources.iter().any(|other| is_omitted(&other)) {
            return None;
        }
        let (kind, name) = (resource.type_name(), quote(resource.name()));
        let message = format!("there is nothing to omit: no less specific EnvoyResource declares {kind} {name}");
        Some(raw.diagnose(&resource.name_field(), message))
    })
}

/// An error for each entry of a VirtualOutbound whose tags no service has.
fn selects_nothing(bundle: &Bundle) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for outbound in &bundle.virtual_outbounds {
        let services = || bundle.services.iter().filter(|service| service.mesh() == outbound.mesh());
        for (index, To { target_ref, .. }) in outbound.spec.to.iter().enumerate() {
            let tagged = target_ref.tags().is_some() && !target_ref.is_optional();
            // A service that does not exist is reported already.
            let named = target_ref.service().is_none_or(|name| services().any(|service| service.name == name));
            if tagged && named && !services().any(|service| service.is_selected_by(target_ref)) {
                let message = format!("{target_ref}: no Service has these tags at all of its endpoints");
                found.push(outbound.diagnose(&format!("spec.to[{index}].targetRef.tags"), message));
            }
        }
    }
    found
}

/// The declared names, by mesh.
#[derive(Default)]
pub(super) struct DeclaredNames<'a> {
    meshes: BTreeMap<&'a str, Names<'a>>,
}

#[derive(Default)]
struct Names<'a> {
    /// Routes of gateways.
    gateways: BTreeSet<&'a str>,
    /// Routes in resources of Envoy's format.
    raw: BTreeSet<String>,
    /// Routes that a policy's `match` finds.
    matched: BTreeSet<&'a str>,
    services: BTreeSet<&'a str>,
    /// Routes that VirtualOutbounds come to. `None` if there are no VirtualOutbounds.
    outbound: Option<BTreeSet<String>>,
}

impl<'a> DeclaredNames<'a> {
    pub(super) fn of(bundle: &'a Bundle) -> Self {
        let mut known = Self::default();
        for gateway in &bundle.gateways {
            let routes = gateway.spec.routes.iter().map(|route| route.name.as_str());
            known.meshes.entry(gateway.mesh()).or_default().gateways.extend(routes);
        }
        for raw in &bundle.envoy_resources {
            let routes = raw.spec.resource.routes().into_iter().map(|route| route.name);
            known.meshes.entry(raw.mesh()).or_default().raw.extend(routes);
        }
        for policy in bundle.route_policies.iter().filter(|policy| policy.spec.matching.is_some()) {
            let route = policy.spec.target_ref.route();
            known.meshes.entry(policy.mesh()).or_default().matched.extend(route);
        }
        for service in &bundle.services {
            known.meshes.entry(service.mesh()).or_default().services.insert(&service.name);
        }
        for outbound in &bundle.virtual_outbounds {
            let names = known.meshes.entry(outbound.mesh()).or_default();
            names.outbound.get_or_insert_with(|| bundle.outbound_routes(outbound.mesh()).collect());
        }
        known
    }

    /// Whether it is known if a mesh has a route. It is not if no route is declared: all are Envoy's own then.
    pub(super) fn knows_of(&self, mesh: &str, route: &str) -> bool {
        self.meshes.get(mesh).is_some_and(|names| {
            let outbound = names.outbound.is_some() && route.starts_with(OUTBOUND_ROUTE);
            outbound || !names.gateways.is_empty() || !names.raw.is_empty()
        })
    }

    /// Whether a service of a mesh is declared.
    pub(super) fn has_service(&self, mesh: &str, service: &str) -> bool {
        self.meshes.get(mesh).is_some_and(|names| names.services.contains(service))
    }

    fn check_outbound<T: Outbound>(&self, resources: &[Resource<T>], found: &mut Vec<Diagnostic>) {
        for resource in resources {
            self.check(resource, resource.spec.to().iter().map(|entry| &entry.target_ref), found);
        }
    }

    fn check<'t, T: Targeted>(
        &self,
        resource: &Resource<T>,
        to: impl IntoIterator<Item = &'t TargetRef>,
        found: &mut Vec<Diagnostic>,
    ) {
        let mut route = |target: &TargetRef, field: &str| {
            let message = self.unknown_route(resource.mesh(), target);
            found.extend(message.map(|message| resource.diagnose(&format!("{field}.name"), message)));
        };
        route(resource.spec.target_ref(), "spec.targetRef");
        let to: Vec<_> =
            to.into_iter().enumerate().map(|(index, to)| (format!("spec.to[{index}].targetRef"), to)).collect();
        to.iter().for_each(|(field, to)| route(to, field));
        for (field, to) in &to {
            let message = self.unknown_service(resource.mesh(), to);
            found.extend(message.map(|message| resource.diagnose(&format!("{field}.name"), message)));
        }
    }

    /// The error of a collector that is an unknown service, or one that does not speak gRPC's protocol.
    fn collector(&self, tracing: &Resource<Tracing>, services: &[Resource<Service>]) -> Option<Diagnostic> {
        let collector = tracing.spec.conf.collector.as_ref()?;
        let (transport, is_grpc) = match collector {
            TraceCollector::Grpc(_) => ("grpc", true),
            TraceCollector::Http(_) => ("http", false),
        };
        let name = collector.endpoint().service.as_deref()?;
        let message = self.unfit_collector(tracing.mesh(), name, is_grpc, services)?;
        Some(tracing.diagnose(&format!("spec.collector.{transport}.service"), message))
    }

    /// The errors of log backends, like those of [`Self::collector`].
    fn log_collectors(&self, settings: &Resource<Settings>, services: &[Resource<Service>]) -> Vec<Diagnostic> {
        let backends = settings.spec.log_backends.iter().enumerate();
        let found = backends.filter_map(|(index, backend)| {
            let name = backend.sink.collector()?.service.as_deref()?;
            let message = self.unfit_collector(settings.mesh(), name, true, services)?;
            let sink = if matches!(backend.sink, LogSink::Grpc(_)) { "grpc" } else { "otlp" };
            Some(settings.diagnose(&format!("spec.logBackends[{index}].{sink}.service"), message))
        });
        found.collect()
    }

    fn unfit_collector(&self, mesh: &str, name: &str, is_grpc: bool, services: &[Resource<Service>]) -> Option<String> {
        match services.iter().find(|service| service.name == name && service.mesh() == mesh) {
            Some(service) if is_grpc && service.spec.protocol == Protocol::Http1 => {
                Some(format!("{} speaks HTTP/1.1: gRPC needs `protocol: grpc` or `http2`", service.label()))
            }
            Some(_) => None,
            None => {
                let names = self.meshes.get(mesh).into_iter().flat_map(|names| names.services.iter().copied());
                Some(format!("unknown service {}{}", quote(name), suggestion(name, names)))
            }
        }
    }

    fn unknown_route(&self, mesh: &str, target: &TargetRef) -> Option<String> {
        let route = target.route().filter(|_| !target.is_optional())?;
        let nothing = Names::default();
        let names = self.meshes.get(mesh).unwrap_or(&nothing);
        let of_gateway = matches!(target, TargetRef::MeshGatewayRoute { .. });
        if let Some(outbound) = names.outbound.as_ref().filter(|_| !of_gateway && route.starts_with(OUTBOUND_ROUTE)) {
            let near = suggestion(route, outbound.iter().map(String::as_str));
            let message = || format!("unknown route {}{near} (no VirtualOutbound comes to it)", quote(route));
            return (!outbound.contains(route)).then(message);
        }
        let raw = || names.raw.iter().map(String::as_str).filter(|_| !of_gateway);
        let none = names.gateways.is_empty() && names.raw.is_empty();
        let own = names.raw.contains(route) || names.matched.contains(route);
        let is_known = names.gateways.contains(route) || !of_gateway && own;
        // Without declared routes, all routes are Envoy's own.
        if !of_gateway && none || is_known {
            return None;
        }
        let near = suggestion(route, names.gateways.iter().copied().chain(raw()).chain(names.matched.iter().copied()));
        let way_out = match of_gateway {
            true => "a route of no Gateway is an `HTTPRoute`",
            false => "a route of Envoy's own needs `optional: true`",
        };
        Some(format!("unknown route {}{near} ({way_out})", quote(route)))
    }

    fn unknown_service(&self, mesh: &str, target: &TargetRef) -> Option<String> {
        let service = target.service().filter(|_| !target.is_optional())?;
        if self.has_service(mesh, service) {
            return None;
        }
        let names = self.meshes.get(mesh).into_iter().flat_map(|names| names.services.iter().copied());
        Some(format!("unknown service {}{}", quote(service), suggestion(service, names)))
    }
}

//! A real Envoy with a gateway for each table of a batch. The next batch replaces the routes of the same gateways, which
//! takes Envoy no new listener.

use std::{collections::BTreeMap, ffi::OsStr, net::SocketAddr};

use postern_tests::{
    ControlPlane, Envoy,
    raw::{Echo, RawRequest},
    site::{free_port, write_whole},
    wait,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    observed::Observed,
    table::{Table, documents, service},
};

pub struct Site {
    directory: TempDir,
    _services: Vec<Echo>,
    ports: Vec<u16>,
    revision: usize,
    running: Option<(ControlPlane, Envoy)>,
}

impl Site {
    /// Services of these names, and places for so many gateways.
    pub fn new(services: &[String], shared: &[Value], gateways: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let echoes: BTreeMap<_, _> = services
            .iter()
            .map(String::as_str)
            .chain(["ready"])
            .map(|name| (name, Echo::start(name).unwrap()))
            .collect();
        let resources = echoes.iter().map(|(name, echo)| service(name, echo.address().port()));
        let resources: Vec<_> = resources.chain(shared.iter().cloned()).collect();
        write_whole(directory.path(), "shared.yaml", &documents(&resources)).unwrap();
        let ports = (0..gateways).map(|_| free_port().unwrap()).collect();
        Self { directory, _services: echoes.into_values().collect(), ports, revision: 0, running: None }
    }

    /// Serves these tables, and waits until Envoy has the routes and the chains of each.
    pub fn publish(&mut self, tables: &[Table]) {
        assert!(tables.len() <= self.ports.len());
        self.revision += 1;
        let ready = |table: &Table| format!("ready-{}-{}", table.name, self.revision);
        let resources: Vec<_> = tables
            .iter()
            .zip(&self.ports)
            .flat_map(|(table, port)| table.resources(*port, Some(&ready(table))))
            .collect();
        write_whole(self.directory.path(), "tables.yaml", &documents(&resources)).unwrap();
        if self.running.is_none() {
            // Each round replaces all tables by others.
            let options = ["--max-removed", "100%", "--allow-unguarded"].map(OsStr::new);
            let control_plane = ControlPlane::start_with(self.directory.path(), &options).unwrap();
            let envoy = Envoy::whole(control_plane.xds()).unwrap();
            self.running = Some((control_plane, envoy));
        }
        for (index, table) in tables.iter().enumerate() {
            let name = ready(table);
            let request = RawRequest::get(&format!("{name}.ready.test"), "/");
            let served = || Ok(Observed::of(&request.send(self.address(index))?).chain.as_deref() == Some(&name));
            wait::until_true(&name, served).unwrap_or_else(|error| panic!("{error:#}\n{}", self.log()));
        }
    }

    /// Where the gateway of a table listens.
    pub fn address(&self, index: usize) -> SocketAddr {
        ([127, 0, 0, 1], self.ports[index]).into()
    }

    /// Messages with fields that this Envoy does not know.
    pub fn unknown_fields(&self) -> u64 {
        let envoy = &self.running.as_ref().unwrap().1;
        envoy.stat("server.dynamic_unknown_fields").unwrap().unwrap_or_default()
    }

    /// The end of both logs.
    pub fn log(&self) -> String {
        let (control_plane, envoy) = self.running.as_ref().unwrap();
        let last = |lines: Vec<String>| lines.iter().rev().take(30).rev().cloned().collect::<Vec<_>>().join("\n");
        format!("postern:\n{}\nenvoy:\n{}", last(control_plane.log()), last(envoy.log()))
    }
}

//! Carries out a [`Delivery`]: makes the response in the client's variant of the protocol, and updates the inventory.

use std::sync::Arc;

use postern_compile::snapshot::ResourceType;

use super::{
    delivery::{Delivery, Parts},
    order::Hold,
    subscription::{Due, Subscription},
};
use crate::xds::{
    content::{Content, Variant},
    offer::{Difference, Offer, Offers},
};

impl Subscription {
    /// The response to send now, if any. The inventory then counts its resources as sent.
    pub(super) fn compose(
        &mut self,
        hold: Hold,
        snapshot: &Offers,
        refused: impl Fn(&Offer) -> bool,
    ) -> Option<Arc<Content>> {
        let due = self.due.clone()?;
        let difference = self.difference.take().unwrap_or_default();
        let delivery = self.decide(&due, &difference, hold, snapshot, refused);
        let content = self.carry_out(delivery, &due, &difference, snapshot);
        (self.begun, self.stale) = (true, self.stale || content.is_some());
        self.asked.clear();
        if content.is_none() && !difference.is_empty() {
            self.difference = Some(difference);
        }
        content
    }

    fn carry_out(
        &mut self,
        delivery: Delivery,
        due: &Due,
        difference: &Difference,
        snapshot: &Offers,
    ) -> Option<Arc<Content>> {
        match delivery {
            Delivery::Nothing => None,
            Delivery::Whole => Some(self.bring_whole(Arc::clone(&due.offer))),
            Delivery::WholeAndKept(kept) => Some(self.bring_whole(kept)),
            Delivery::Difference => {
                self.inventory.settle(Arc::clone(&due.offer), []);
                Some(difference.changes(self.kind, &due.offer))
            }
            Delivery::Changes(parts) => {
                let content = self.content_of(parts, due, snapshot);
                let beyond = difference.beyond.iter().map(|(name, _)| name);
                let kept = beyond.filter(|name| !content.removed.contains(name));
                self.inventory.settle(Arc::clone(&due.offer), kept);
                Some(content)
            }
            Delivery::Answers(parts) => {
                let content = self.content_of(parts, due, snapshot);
                content.resources.iter().for_each(|resource| self.inventory.sent(resource));
                content.removed.iter().for_each(|name| self.inventory.gone(name));
                Some(content)
            }
        }
    }

    fn bring_whole(&mut self, offer: Arc<Offer>) -> Arc<Content> {
        let content = offer.whole(self.variant, self.kind);
        self.inventory.settle(offer, []);
        content
    }

    /// The response with these parts; the shared one if it is all that is due.
    fn content_of(&self, parts: Parts, due: &Due, snapshot: &Offers) -> Arc<Content> {
        let is_host = self.kind == ResourceType::VirtualHost;
        let Parts { resources, removed, vacant } = parts;
        if !is_host && removed.is_empty() && resources.len() == due.offer.set().resources.len() {
            return due.offer.whole(self.variant, self.kind);
        }
        let resources = resources.into_values().collect();
        let mut content = Content::new(Variant::Incremental, self.kind, due.offer.version().clone(), resources);
        content.removed = removed.into_iter().collect();
        content.vacant = vacant.into_iter().collect();
        if is_host {
            let aliases = |name: &str| snapshot.virtual_hosts().aliases(name, self.interest.names());
            let names = content.resources.iter().map(|resource| &resource.name);
            content.aliases = names.map(|name| (name.clone(), aliases(name))).collect();
        }
        Arc::new(content)
    }
}

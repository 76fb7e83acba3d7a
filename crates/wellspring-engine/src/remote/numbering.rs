//! Places a remote agent's events in the log: its part and agent numbers become the run's, and every
//! event is checked against the grammar.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use wellspring_core::{AgentNo, Checker, Event, PartId, Transcript};

use crate::agent_loop::AgentWork;

/// Maps a remote agent's parts to the run's. Clones share the map.
#[derive(Clone, Debug, Default)]
pub(crate) struct Placed(Arc<Mutex<BTreeMap<PartId, PartId>>>);

impl Placed {
    pub(crate) fn get(&self, part: PartId) -> Option<PartId> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&part).copied()
    }

    fn insert(&self, part: PartId, placed: PartId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(part, placed);
    }
}

/// Renumbers and checks a remote agent's events, so that a faulty agent cannot break our log.
pub(crate) struct Placing<'a> {
    work: &'a AgentWork,
    parts: Placed,
    agents: BTreeMap<AgentNo, AgentNo>,
    checker: Checker,
    /// The agent's name, under which its handle is kept.
    origin: Box<str>,
}

impl<'a> Placing<'a> {
    /// `resumed` if the agent continues a run: it knows the parts and agents of that run by their
    /// numbers there.
    pub(crate) fn new(
        work: &'a AgentWork,
        parts: Placed,
        origin: &str,
        resumed: Option<&Transcript>,
    ) -> Self {
        let checker = work.run.folded(|transcript| Checker::resume(transcript.outline.clone()));
        let mut agents = BTreeMap::from([(AgentNo::ROOT, work.agent)]);
        if let Some(resumed) = resumed {
            agents.extend(resumed.outline.agents.keys().map(|agent| (*agent, *agent)));
            for part in resumed.parts.keys() {
                parts.insert(*part, *part);
            }
        }
        Self { work, parts, agents, checker, origin: origin.into() }
    }

    pub(crate) fn place(
        &mut self,
        agent: AgentNo,
        event: Event,
    ) -> Result<(AgentNo, Event), String> {
        if matches!(event, Event::AgentStarted { .. }) {
            self.agents.insert(agent, self.work.run.mint_agent());
        }
        let agent =
            *self.agents.get(&agent).ok_or("it sent an event of an agent that has not started")?;
        let event = self.place_event(event)?;
        let event = self.checker.admit(agent, event).map_err(|violation| violation.to_string())?;
        Ok((agent, event))
    }

    fn place_event(&mut self, mut event: Event) -> Result<Event, String> {
        if !is_a_remote_agents(&event) {
            return Err(format!("it sent an event that only the engine may write: {event}"));
        }
        if let Event::PartStarted { part, .. } = &event {
            self.parts.insert(*part, self.work.run.mint_part());
        }
        let mut unknown = None;
        event.rename_parts(|part| {
            self.parts.get(part).unwrap_or_else(|| {
                unknown = Some(part);
                part
            })
        });
        if let Event::Attached { origin, .. } = &mut event {
            origin.clone_from(&self.origin);
        }
        if let Event::AgentStarted { parent, .. } = &mut event {
            *parent = *self.agents.get(parent).ok_or("a sub-agent's parent has not started")?;
        }
        match unknown {
            Some(part) => Err(format!("it named part {part}, which it never opened")),
            None => Ok(event),
        }
    }
}

fn is_a_remote_agents(event: &Event) -> bool {
    match event {
        Event::TurnStarted(_)
        | Event::TurnFinished { .. }
        | Event::PartStarted { .. }
        | Event::PartDelta { .. }
        | Event::PartAnnotated { .. }
        | Event::PartFinished { .. }
        | Event::PartsVoided { .. }
        | Event::ToolQueued { .. }
        | Event::ToolStarted { .. }
        | Event::ToolUpdated { .. }
        | Event::ToolFinished { .. }
        | Event::AgentStarted { .. }
        | Event::AgentFinished { .. }
        | Event::PlanUpdated { .. }
        | Event::StateSet { .. }
        | Event::StatePatched { .. }
        | Event::SourceCited(_)
        | Event::FileProduced(_)
        | Event::UsageReported(_)
        | Event::ResultReady { .. }
        | Event::Attached { .. }
        | Event::Extended(_) => true,
        Event::RunStarted(_)
        | Event::RunAdopted { .. }
        | Event::RunPaused { .. }
        | Event::RunResumed { .. }
        | Event::QuestionAsked(_)
        | Event::QuestionAnswered(_)
        | Event::InputAccepted { .. }
        | Event::InputApplied { .. }
        | Event::RunFinished { .. } => false,
    }
}

//! Whoever asks questions and decides.

use std::time::Duration;

use presence_model::id::{EdgeName, Incarnation};
use presence_model::revocation::Revocation;

use super::{World, ms, room, user};
use crate::driver::{Answer, Input, Query, QueryKey, QueryRefusal};

impl World {
    /// Asks the first core and waits for the answer.
    pub(in crate::driver::tests) fn ask(&mut self, query: Query) -> Result<Answer, QueryRefusal> {
        self.ask_core(0, query)
    }

    pub(in crate::driver::tests) fn ask_core(
        &mut self,
        core: usize,
        query: Query,
    ) -> Result<Answer, QueryRefusal> {
        let key = QueryKey(self.sequence);
        self.sequence += 1;
        self.input(core, Input::Query(key, query));
        self.answer(key)
    }

    /// Whether a core refuses a question at once.
    pub(in crate::driver::tests) fn is_refused(&mut self, core: usize, query: Query) -> bool {
        let key = QueryKey(self.sequence);
        self.sequence += 1;
        self.input(core, Input::Query(key, query));
        matches!(self.answers.get(&key), Some(Err(_)))
    }

    /// Has a core evict somebody from the room `r`, and waits for the answer.
    pub(in crate::driver::tests) fn evict(
        &mut self,
        core: usize,
        name: &str,
    ) -> Result<Answer, QueryRefusal> {
        let key = QueryKey(self.sequence);
        self.sequence += 1;
        self.input(core, Input::Evict(key, room("r"), user(name)));
        self.answer(key)
    }

    /// Has a core revoke something, and waits for the answer.
    pub(in crate::driver::tests) fn revoke(
        &mut self,
        core: usize,
        what: Revocation,
        span: Duration,
    ) -> Result<Answer, QueryRefusal> {
        let key = QueryKey(self.sequence);
        self.sequence += 1;
        self.input(core, Input::Revoke(key, what, span));
        self.answer(key)
    }

    /// Has a core send an edge away, and waits for the answer.
    pub(in crate::driver::tests) fn drain_edge(
        &mut self,
        core: usize,
        name: EdgeName,
        edge: Option<Incarnation>,
    ) -> Result<Answer, QueryRefusal> {
        let key = QueryKey(self.sequence);
        self.sequence += 1;
        self.input(core, Input::DrainEdge(key, name, edge));
        self.answer(key)
    }

    fn answer(&mut self, key: QueryKey) -> Result<Answer, QueryRefusal> {
        for _ in 0..1_000 {
            if let Some(answer) = self.answers.remove(&key) {
                return answer;
            }
            self.run(ms(10));
        }
        panic!("no answer to a question within 10 s");
    }
}

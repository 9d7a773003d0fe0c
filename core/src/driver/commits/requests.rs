//! What comes over a link becomes work: the token is judged, names are completed, a lease is minted.

use presence_model::claim::{Action, Claims, TokenRefusal};
use presence_model::cursor::Cursor;
use presence_model::id::{EdgeName, Generation, RoomId, Roster, UserId};
use presence_model::lease::{EdgeMark, LeaseId};
use presence_model::link::{JoinUp, LinkDown, LinkRefusal, LinkUp, RequestId};
use presence_model::member::{self, Moved};
use presence_model::profile::State;
use presence_model::reason::LeaveReason;
use presence_model::record::EdgeRef;
use presence_model::refusal::Refusal;
use presence_runtime::json::is_read_everywhere;
use rand::Rng as _;

use super::{JoinWork, Work};
use crate::driver::{Driver, Effect, LinkKey, Verb, Verified};

impl Driver {
    /// A session wants in.
    pub(in crate::driver) fn on_join(&mut self, link: LinkKey, up: JoinUp, verified: Verified) {
        let Some(edge) = self.links.edge(link) else { return };
        let request = up.request;
        let claims = match judge(verified, &up.room, None) {
            Ok(claims) => claims,
            Err(refusal) => {
                let outcome = Err(self.refuse_token(link, refusal));
                return self.tell(link, LinkDown::Joined { request, outcome });
            }
        };
        let is_too_high = up.generation.is_some_and(|generation| generation > Generation::MAX);
        if is_too_high || !is_good(&up.profile.state) {
            return self.tell(link, LinkDown::Joined { request, outcome: Err(LinkRefusal::BadRequest) });
        }
        let roster = Roster { region: edge.region.clone(), room: up.room };
        if up.rejoin.is_none()
            && let Err(refusal) = self.admit_arrival(&roster, up.generation)
        {
            return self.tell(link, LinkDown::Joined { request, outcome: Err(refusal) });
        }
        let join = member::Join {
            session: up.session,
            generation: up.generation,
            connection: up.connection,
            request,
            lease: self.mint(&roster, &edge.name),
            edge: EdgeRef { name: edge.name, incarnation: edge.incarnation, region: edge.region },
            profile: up.profile,
            client: up.client,
            token: claims.token.clone(),
            rejoin: up.rejoin,
            moved: self.moved_from(&roster, &claims.user, &up.cursor),
        };
        let user = claims.user.clone();
        let work = JoinWork { link, request, join, claims, decided: None };
        self.enqueue(roster, user, Work::Join(Box::new(work)));
    }

    /// Whether a user comes from another region: it is shown there, or its client says that it has seen one. Nobody
    /// may see it as gone in between.
    fn moved_from(&self, roster: &Roster, user: &UserId, cursor: &Cursor) -> Option<Moved> {
        let others = || self.known_regions().filter(|region| **region != roster.region);
        let shown = others().filter_map(|region| self.shown_in(region, &roster.room, user));
        let since = shown.map(|member| member.since).min();
        (since.is_some() || others().any(|region| cursor.seen(region).is_some())).then_some(Moved { since })
    }

    /// A lease id for a roster and an edge, unpredictable if the seed is.
    pub(super) fn mint(&mut self, roster: &Roster, edge: &EdgeName) -> LeaseId {
        let ttl = self.timings_of(&roster.room).lease_ttl;
        LeaseId::mint(ttl, self.shard(roster), self.rng.next_u64()).marked(EdgeMark::of(edge))
    }

    /// A session says something new.
    pub(in crate::driver) fn on_update(&mut self, link: LinkKey, up: LinkUp, verified: Verified) {
        let Some(edge) = self.links.edge(link) else { return };
        let LinkUp::Update { request, lease, room, user, status, state, token } = up else { return };
        if !self.is_own(link, Verb::Update, lease) {
            return self.answer_done(link, request, Err(LinkRefusal::Forbidden));
        }
        if state.as_ref().is_some_and(|state| !is_good(state)) {
            return self.answer_done(link, request, Err(LinkRefusal::BadRequest));
        }
        let claims = match token {
            None => None,
            Some(_) => match judge(verified, &room, Some(&user)) {
                Ok(claims) => Some(Box::new(claims)),
                Err(refusal) => {
                    let refusal = self.refuse_token(link, refusal);
                    return self.answer_done(link, request, Err(refusal));
                }
            },
        };
        let token = claims.as_ref().map(|claims| claims.token.clone());
        let update = Box::new(member::Update { lease: lease.plain_name(), status, state, token });
        let roster = Roster { region: edge.region, room };
        self.enqueue(roster, user, Work::Update { link, request, update, claims });
    }

    /// A token is refused, which is counted and told by its reason: the edge hears of which kind that is.
    pub(super) fn refuse_token(&mut self, link: LinkKey, refusal: TokenRefusal) -> LinkRefusal {
        if let Some(edge) = self.links.edge(link) {
            self.out.push(Effect::TokenRefused(edge.name, refusal));
        }
        // A session whose token has ended is told so, and not that somebody took it back.
        if refusal == TokenRefusal::Expired {
            return LinkRefusal::Refused(Refusal::TokenEnded);
        }
        if refusal.is_forbidden() { LinkRefusal::Forbidden } else { LinkRefusal::Unauthorized }
    }

    /// A session is over at its edge's word: its renewals that still wait are void.
    pub(in crate::driver) fn on_leave(
        &mut self,
        link: LinkKey,
        request: RequestId,
        (lease, reason): (LeaseId, LeaveReason),
        (room, user): (RoomId, UserId),
    ) {
        let Some(edge) = self.links.edge(link) else { return };
        if !self.is_own(link, Verb::Leave, lease) {
            return self.answer_done(link, request, Err(LinkRefusal::Forbidden));
        }
        let lease = lease.plain_name();
        self.renewals.take_out(link, &[lease]);
        let roster = Roster { region: edge.region, room };
        self.enqueue(roster, user, Work::Leave { link, request, lease, reason });
    }
}

/// An edge checks what its clients say; what another one lets pass must not reach everybody's readers.
fn is_good(state: &State) -> bool {
    is_read_everywhere(state.as_bytes())
}

/// Judges a token as far as that needs no clock: room, action and, if one is known, the subject.
fn judge(verified: Verified, room: &RoomId, user: Option<&UserId>) -> Result<Claims, TokenRefusal> {
    let claims = verified.unwrap_or(Err(TokenRefusal::Malformed))?;
    if claims.room != *room {
        return Err(TokenRefusal::Room);
    }
    if !claims.action.permits(Action::Join) {
        return Err(TokenRefusal::Action);
    }
    if user.is_some_and(|user| *user != claims.user) {
        return Err(TokenRefusal::Subject);
    }
    Ok(claims)
}

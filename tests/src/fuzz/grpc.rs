//! Messages of other processes: what is taken is within the bounds of the model and is written the same again.

use std::fmt::Debug;

use presence_model::link::{LinkDown, LinkUp};
use presence_model::watch::{WatchDown, WatchUp};
use presence_proto::{WireError, convert, v1};
use prost::Message;

/// The first byte says which message of which direction it is to be.
pub(super) fn run(bytes: &[u8]) {
    let Some((kind, sent)) = bytes.split_first() else { return };
    match kind % 5 {
        0 => both_ways::<v1::LinkRequest, LinkUp>(sent),
        1 => both_ways::<v1::LinkResponse, LinkDown>(sent),
        2 => both_ways::<v1::WatchRequest, WatchUp>(sent),
        3 => both_ways::<v1::WatchResponse, WatchDown>(sent),
        _ => {
            if let Ok(first) = v1::LinkRequest::decode(sent)
                && let Ok(hello) = convert::hello(first)
            {
                assert_eq!(convert::hello(convert::hello_request(hello.clone())), Ok(hello));
            }
        }
    }
}

fn both_ways<W, M>(sent: &[u8])
where
    W: Message + Default + From<M>,
    M: TryFrom<W, Error = WireError> + Clone + Debug + PartialEq,
{
    let Ok(wire) = W::decode(sent) else { return };
    let Ok(meant) = M::try_from(wire) else { return };
    let again = W::decode(W::from(meant.clone()).encode_to_vec().as_slice()).expect("what we wrote");
    assert_eq!(M::try_from(again), Ok(meant));
}

fn said<W: Message>(kind: u8, message: W) -> Vec<u8> {
    [vec![kind], message.encode_to_vec()].concat()
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    use v1::link_request::Message as Up;
    use v1::link_response::Message as Down;
    let session = || "0123456789abcdef".to_owned();
    let up = |message| said(0, v1::LinkRequest { message: Some(message) });
    let down = |message| said(1, v1::LinkResponse { message: Some(message) });
    let join =
        v1::Join { room: "r1".into(), token: "a.b.c".into(), session: session(), ..Default::default() };
    let hello = v1::Hello {
        edge: "edge-1".into(),
        incarnation: 7,
        link_number: 1,
        region: "eu".into(),
        ..Default::default()
    };
    let open =
        v1::OpenRoom { room: "r1".into(), level: v1::WatchLevel::Members.into(), ..Default::default() };
    let member = v1::Member { user: "u1".into(), status: 1, state: (&b"{}"[..]).into(), since_ms: 5 };
    let epoch = v1::Epoch { minted_ms: 1, random: 2 };
    let live = v1::Freshness { state: v1::freshness::State::Live.into(), since_ms: 0 };
    let page = v1::Snapshot {
        region: "eu".into(),
        position: Some(v1::Position { epoch: Some(epoch), revision: 3 }),
        freshness: Some(live),
        members: vec![member.clone()],
        first: true,
        more: false,
        digest: 9,
    };
    let removal = v1::Removal { user: "u2".into(), reason: v1::RemovalReason::Left.into(), silent_for_ms: 7 };
    let delta = v1::Delta {
        region: "eu".into(),
        epoch: Some(epoch),
        from: 3,
        to: 4,
        upserts: vec![member],
        removals: vec![removal],
        digest: 9,
    };
    let told = |event| said(3, v1::WatchResponse { room: "r1".into(), event: Some(event) });
    let (room, user) = (|| "r1".to_owned(), || "u1".to_owned());
    vec![
        up(Up::Join(join)),
        up(Up::Renew(v1::Renew { batch: 1, leases: vec![2, 4] })),
        up(Up::Release(v1::Release { leases: vec![2], reason: 1, ..Default::default() })),
        up(Up::Leave(v1::Leave { request: 1, lease: 2, room: room(), user: user(), reason: 2 })),
        up(Up::Update(v1::Update {
            lease: 2,
            room: room(),
            user: user(),
            status: Some(2),
            ..Default::default()
        })),
        down(Down::Renew(v1::RenewResult { batch: 1, unknown: vec![2] })),
        down(Down::Done(v1::Done { request: 1, ..Default::default() })),
        down(Down::Drain(v1::Drain {})),
        said(2, v1::WatchRequest { message: Some(v1::watch_request::Message::Open(Box::new(open))) }),
        told(v1::watch_response::Event::Snapshot(page)),
        told(v1::watch_response::Event::Delta(delta)),
        told(v1::watch_response::Event::Count(v1::Count { members: 7 })),
        said(4, v1::LinkRequest { message: Some(Up::Hello(hello)) }),
    ]
}

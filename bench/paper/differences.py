"""Where and why we differ from the paper, figure by figure: the words of docs/paper/README.md that are not numbers."""

DIFFERENCES = {
    "figure4": """
**Where we differ, and why.** As in the paper, throughput grows linearly with consumers. Theirs also grows with the
items per enqueue, because every visit of a pointer costs a manager thread its transactions, however many items it
finds. Our manager visits up to 128 pointers in one transaction, so the slots are full with one item per queue as well:
128 slots of 50 ms are 2,560 items a second. What more items per enqueue save is seen in the leases: there are fewer
to take.

Theirs stops being linear at a network thread of FoundationDB's client, which the model does not have. In the model
what grows with the number of consumers is collisions: with one in order and the others at random, each scan chooses
from the same 20,000 pointers; with own parts there are next to none, and a thousand consumers of eight slots do 159
items a second each, of the 160 that their slots allow. How far the simulator goes is a question of its speed: an item
takes it 0.4 ms of one core with large consumers and 1 to 15 ms with small ones, and a scan that looks at 20,000
pointers 60 ms. So 256 small consumers with own parts take it four minutes, a thousand 50 minutes and 11 GB of memory,
and as many that choose at random a day.

On the machine the first consumer comes to nine tenths of what its slots allow. The second adds a third, and the third
nothing: with four actors to a consumer, and handlers that only sleep, it is the two cores that are full.
""",
    "figure5": """
**Where we differ, and why.** The paper's text has no numbers for this figure. What it says of it holds: an item waits
as long as its pointer, and a hand-over to a worker. At 2,500 items a second one consumer's slots are 98 % full, and
items also wait for a slot; at half of that they do not. The machine is offered what it can serve, so its store is near
idle, each commit takes an fsync, and an item starts within a few milliseconds.
""",
    "figure6": """
**Where we differ, and why.** The shape is the paper's: pointers are picked up evenly, and the tail is items in long
queues, which get one item per visit ("water filling"). Our times are shorter. A visit is one transaction here, where
the paper has three (lease, dequeue, requeue), each with a commit that waits for two sites, and the next scan does not
wait for the last one's visits. The tail follows from that: with one item per visit, a queue of sixty takes the
paper's 8.2 s if it is visited every 137 ms; one that is visited five times as often is soon short again. How long the
queues become also depends on the enqueues per second, which the paper does not state for this figure: ours are those
of all its clients, which nearly fill one consumer.

Of the two consumers of the model, the one that leases pointer by pointer picks up sooner: a batch of 64 is done when
its last pointer is. Its items then wait longer for a slot, because each of its 64 workers has two of its own, where
ours shares all 128.
""",
    "figure7": """
**Where we differ, and why.** The shape is the paper's: the larger the fraction, the sooner a pointer is found and the
more attempts fail, and beyond `selection_max` (2,000 of 20,000) nothing changes at saturation. The paper does not say
under which load it counted the failures. Ours come near to its numbers under the 2,500 enqueues a second of its
clients, where few pointers have vested and all consumers choose among the same; at saturation there are 20,000 to
choose from, and far fewer attempts fail.

*How many fail.* Our consumers with one pointer per transaction fail more often than the paper's at 0.5: they scan
again as soon as there is room, some 300 times a second each, and so choose what another has just chosen. With batches
they scan less often, and fail less.

*At the read or at the commit.* In the paper 50 to 60 % of the failures show at the commit, up to 0.2. It leases with
read versions that are cached (section 6, "Isolation level"), which may be old, so a read may still find a pointer
free that has been leased. Our read version is taken for the visit, so more is found at the read, where it costs
least. And a batch that conflicts is halved and tried again; what it lost is found at the read then, so its share at
the commit says nothing: look at its conflicts.

*Own parts* is not in the paper: consumers divide the queue by their sessions, and each takes its own in order, so
there is nothing to collide with and no fraction to choose: its rows measure one thing several times. Its pointers wait
less than with the best fraction of our own consumer, at random or with one in order. The paper's consumer at 0.5 is
3 ms sooner yet, with a transaction for each pointer, of which four in five then fail.

*On the machine* four consumers share two cores and one writer. Of what they try at random more than half fails even at
the smallest fraction, since all of them look at the few pointers that have just vested. With own parts the failures
are gone, a fifth to a third more is done when full, and pointers wait 19 to 36 ms, as long as with the best fraction
(25 ms) or sooner: how long is a matter of what else the cores do.
""",
}

"""The differences from the paper and their causes, figure by figure: text of docs/paper/README.md."""

DIFFERENCES = {
    "figure4": """
**Differences and their causes.** As in the paper, throughput grows linearly with consumers. The paper's throughput
also grows with the items per enqueue, because a manager thread needs its transactions for every pointer, however many
items the zone has. Our manager processes up to 128 pointers in one transaction. So its slots are full with one item per
queue as well: 128 slots of 50 ms are 2,560 items a second. More items per enqueue mean fewer leases of pointers.

The paper's throughput stops being linear at a network thread of FoundationDB's client, which the model does not have.
In the model, conflicts grow with the number of consumers: with one in order and the others at random, each scan chooses
from the same 20,000 pointers. With own parts there are hardly any conflicts: each of a thousand consumers of eight
slots does 159 items a second, of 160 possible. The simulator's speed limits the scale. An item takes 0.4 ms of one core
with large consumers, and 1 to 15 ms with small ones; a scan of 20,000 pointers takes 60 ms. So a simulation of 256
small consumers with own parts takes four minutes. One of a thousand takes 50 minutes and 11 GB of memory; with random
choice it would take a day.

On the machine the first consumer reaches nine tenths of the rate that its slots allow. The second adds a third, and the
third nothing: with four actors per consumer, and handlers that only sleep, the two cores are the limit.
""",
    "figure5": """
**Differences and their causes.** The paper's text has no numbers for this figure. Its statement is true here, too: an
item waits for its pointer, and then for the call of a worker. At 2,500 items a second one consumer's slots are 98 %
full, and items also wait for a slot; at half of that they do not. The machine gets a load that it can serve. So its
store is nearly idle, each commit takes an fsync, and an item starts within a few milliseconds.
""",
    "figure6": """
**Differences and their causes.** The shape is the paper's: all pointers are leased equally soon, and the tail is the
items of long queues, because a dequeue takes one item of each queue ("water filling"). Our times are shorter. A dequeue
is one transaction here, where the paper has three (lease, dequeue, requeue), each with a commit that waits for two
sites. The next scan does not wait for the dequeues of the last one. The tail follows from that: with one item per
dequeue, a queue of sixty takes the paper's 8.2 s at one dequeue in 137 ms. With five times as many dequeues, a queue is
soon short again. The length of the queues also depends on the enqueues per second, which the paper does not state for
this figure. Ours are those of all the paper's clients, which nearly fill one consumer.

The model has two consumers. The one that leases pointer by pointer leases sooner, because a batch of 64 ends with its
last pointer. Its items then wait longer for a slot, because each of its 64 workers has two slots of its own, while our
consumer shares all 128.
""",
    "figure7": """
**Differences and their causes.** The shape is the paper's: with a larger fraction, a pointer is found sooner and more
attempts fail. Beyond `selection_max` (2,000 of 20,000) there is no change at saturation. The paper does not state the
load under which it counted the failures. Ours come near to its numbers under the 2,500 enqueues a second of its
clients, where few pointers have vested and all consumers choose among the same. At saturation there are 20,000
pointers, and far fewer attempts fail.

*The number of failures.* Our consumers with one pointer per transaction fail more often than the paper's at 0.5. They
scan again as soon as there is capacity, some 300 times a second each, and so choose pointers that another has just
chosen. With batches they scan less often, and fail less.

*At the read or at the commit.* In the paper, 50 to 60 % of the failures occur at the commit, up to 0.2. The paper's
consumer leases with cached read versions (section 6, "Isolation level"), which may be old. So a read may not see that a
pointer has been leased. Our read version is new for each dequeue, so more failures occur at the read, where they cost
least. A batch that conflicts is halved and retried, and the retry finds the lost pointers at the read. So the share of
a batch at the commit has no meaning; compare its conflicts.

*Own parts* is not in the paper: consumers divide the queue by their sessions, and each takes its own pointers in order.
So there are no conflicts and no fraction to choose, and its rows measure the same several times. Its pointers wait less
than with the best fraction of our own consumer, at random or with one in order. The paper's consumer at 0.5 is 3 ms
faster still, with a transaction for each pointer; but four in five of these fail.

*On the machine* four consumers share two cores and one writer. With random choice more than half of the attempts fail
even at the smallest fraction, because all consumers choose among the few pointers that have just vested. With own parts
there are no failures, and throughput at saturation is a fifth to a third higher. Pointers wait 19 to 36 ms, about as
long as with the best fraction (25 ms); the wait depends on the other load of the cores.
""",
}

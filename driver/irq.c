// SPDX-License-Identifier: GPL-2.0-only
/*
 * Vector 0 serves the admin queue; the others serve the queue pairs that have
 * an eventfd, several to a vector. With one vector, it serves all.
 *
 * The card interrupts once for each arming and does not say which queue pair
 * of the vector it was: all their eventfds are signalled, as the interface to
 * user space permits. There is nothing to coalesce, and who polls makes no
 * interrupt.
 */
#include <linux/interrupt.h>
#include <linux/slab.h>

#include "compat.h"
#include "optinc.h"
#include "trace.h"

static unsigned int signal_vector(struct optinc_vector *vector)
{
	struct optinc_qp *qp;
	unsigned long flags;
	unsigned int n = 0;

	spin_lock_irqsave(&vector->lock, flags);
	vector->interrupts++;
	list_for_each_entry(qp, &vector->qps, vector_node) {
		optinc_eventfd_signal(qp->eventfd);
		n++;
	}
	spin_unlock_irqrestore(&vector->lock, flags);
	return n;
}

static irqreturn_t interrupt(int irq, void *data)
{
	struct optinc_vector *vector = data;
	unsigned int n;

	if (!vector->index)
		optinc_admin_interrupt(vector->odev);
	n = signal_vector(vector);
	trace_optinc_interrupt(vector->odev->id, vector->index, n);
	return IRQ_HANDLED;
}

/* As many vectors as there are of use, or as few as there are to be had */
int optinc_irq_setup(struct optinc_device *odev)
{
	struct pci_dev *pdev = odev->pdev;
	unsigned int want, i;
	int n, ret;

	want = min3(odev->cap_vectors, num_online_cpus() + 1, OPTINC_MAX_VECTORS + 0U);
	n = pci_alloc_irq_vectors(pdev, 1, want, PCI_IRQ_MSIX);
	if (n < 0)
		return dev_err_probe(&pdev->dev, n, "no interrupt vector\n");

	odev->vectors = kcalloc(n, sizeof(*odev->vectors), GFP_KERNEL);
	if (!odev->vectors) {
		ret = -ENOMEM;
		goto free_vectors;
	}
	for (i = 0; i < n; i++) {
		struct optinc_vector *vector = &odev->vectors[i];

		vector->odev = odev;
		vector->index = i;
		spin_lock_init(&vector->lock);
		INIT_LIST_HEAD(&vector->qps);
		snprintf(vector->name, sizeof(vector->name), "optinc%d-%s%u", odev->id,
			 i ? "io" : "admin", i);
		ret = request_irq(pci_irq_vector(pdev, i), interrupt, 0, vector->name, vector);
		if (ret)
			goto free_irqs;
	}
	odev->nr_vectors = n;
	return 0;

free_irqs:
	while (i--)
		free_irq(pci_irq_vector(pdev, i), &odev->vectors[i]);
	kfree(odev->vectors);
	odev->vectors = NULL;
free_vectors:
	pci_free_irq_vectors(pdev);
	return ret;
}

/* No queue pair is left. Files that stay open find no vectors. */
void optinc_irq_teardown(struct optinc_device *odev)
{
	unsigned int i;

	for (i = 0; i < odev->nr_vectors; i++)
		free_irq(pci_irq_vector(odev->pdev, i), &odev->vectors[i]);
	pci_free_irq_vectors(odev->pdev);
	odev->nr_vectors = 0;
	kfree(odev->vectors);
	odev->vectors = NULL;
}

/* The one with the fewest queue pairs, not the admin queue's if there is a choice */
struct optinc_vector *optinc_vector_choose(struct optinc_device *odev)
{
	struct optinc_vector *best = &odev->vectors[odev->nr_vectors > 1];
	unsigned int i;

	for (i = 2; i < odev->nr_vectors; i++)
		if (READ_ONCE(odev->vectors[i].nr_qps) < READ_ONCE(best->nr_qps))
			best = &odev->vectors[i];
	return best;
}

void optinc_vector_attach(struct optinc_qp *qp, struct optinc_vector *vector)
{
	qp->vector = vector;
	spin_lock_irq(&vector->lock);
	list_add_tail(&qp->vector_node, &vector->qps);
	WRITE_ONCE(vector->nr_qps, vector->nr_qps + 1);
	spin_unlock_irq(&vector->lock);
}

/* When it returns, no handler uses the queue pair. */
void optinc_vector_detach(struct optinc_qp *qp)
{
	struct optinc_vector *vector = qp->vector;

	if (!vector)
		return;
	spin_lock_irq(&vector->lock);
	list_del(&qp->vector_node);
	WRITE_ONCE(vector->nr_qps, vector->nr_qps - 1);
	spin_unlock_irq(&vector->lock);
	qp->vector = NULL;
}

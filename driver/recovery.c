// SPDX-License-Identifier: GPL-2.0-only
/*
 * Resets, from whatever side they come, and sleep. All are transitions as
 * state.c has them: quiesce; stop the card; give back what contexts had; bring
 * it up again.
 *
 * A card that does not come back is left alone: bus mastering off, state DEAD,
 * one line in the log. It blocks neither sleep nor removal. OPTINC_IOCTL_RESET,
 * a function reset or a wake-up try again.
 */
#include <linux/delay.h>
#include <linux/pm.h>

#include "optinc.h"
#include "trace.h"

#define HEALTH_PERIOD	(2 * HZ)
#define RECENT		(60 * HZ)	/* this many resets of the driver's own in ... */
#define MANY		5		/* ... so short a time are enough */

/* Why a card does not start; by the owner of a transition */
void optinc_trouble(struct optinc_device *odev, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vscnprintf(odev->trouble, sizeof(odev->trouble), format, args);
	va_end(args);
}

/* From a card that is stopped to one that is ready; the owner of a transition */
int optinc_bring_up(struct optinc_device *odev)
{
	int ret;

	ret = optinc_hw_boot(odev);
	if (ret) {
		optinc_trouble(odev, "firmware does not run");
		return ret;
	}
	optinc_admin_prepare(odev);
	pci_set_master(odev->pdev);
	ret = optinc_hw_enable(odev);
	if (ret)
		goto stop;
	optinc_admin_start(odev);
	ret = optinc_identify(odev);
	if (READ_ONCE(odev->admin.wrong)) {
		optinc_trouble(odev, "%s", odev->admin.wrong);
		ret = ret ?: -EIO;
	}
	if (ret)
		goto stop;
	/* What function resets and error recovery restore */
	pci_save_state(odev->pdev);
	return 0;

stop:
	optinc_stop(odev);
	return ret;
}

/* No DMA when it returns, one way or another */
void optinc_stop(struct optinc_device *odev)
{
	optinc_admin_stop(odev);
	if (optinc_hw_disable(odev))
		pci_clear_master(odev->pdev);
}

/* What contexts and unanswered commands had; the card is stopped. */
static void reap(struct optinc_device *odev)
{
	optinc_contexts_reap(odev);
	optinc_buffers_reap(odev);
}

/* The transition's end. A reset that somebody asked for is news only if it fails. */
static int finish(struct optinc_device *odev, const char *why, bool fault, int ret)
{
	struct device *dev = &odev->pdev->dev;

	trace_optinc_reset(odev->id, why, ret);
	if ((ret || fault) && __ratelimit(&odev->log_limit)) {
		if (ret)
			dev_err(dev, "%s: left alone (%d): %s\n", why, ret, odev->trouble);
		else
			dev_err(dev, "%s, STATUS %#x: was reset\n", why, odev->status);
	}
	if (!ret)
		optinc_health_start(odev);
	optinc_end(odev, ret ? OPTINC_DEAD : OPTINC_ONLINE);
	return ret;
}

static int function_reset(struct optinc_device *odev)
{
	struct pci_dev *pdev = odev->pdev;
	int ret;

	pci_clear_master(pdev);
	ret = pcie_reset_flr(pdev, PCI_RESET_DO_RESET);
	pci_restore_state(pdev);
	return ret;
}

/*
 * Resets the card and brings it back; the owner of a transition. Ends it.
 * @why is the fault, NULL if somebody asked for it.
 */
int optinc_reset(struct optinc_device *odev, const char *why)
{
	int ret;

	trace_optinc_reset(odev->id, "quiesce", 0);
	optinc_quiesce(odev);
	odev->resets++;
	odev->status = optinc_read(odev, OPTINC_REG_STATUS);
	ret = optinc_hw_reset(odev);
	trace_optinc_reset(odev->id, "register", ret);
	if (ret && ret != -ENODEV) {
		ret = function_reset(odev);
		trace_optinc_reset(odev->id, "function", ret);
	}
	if (ret) {
		pci_clear_master(odev->pdev);
		optinc_trouble(odev, "cannot be reset");
	}
	reap(odev);
	if (!ret)
		ret = optinc_bring_up(odev);
	return finish(odev, why ?: "reset", why, ret);
}

/* A card that fails again and again does not get better by resets. */
static bool too_often(struct optinc_device *odev)
{
	if (time_after(jiffies, odev->first_reset + RECENT) || !odev->recent_resets) {
		odev->first_reset = jiffies;
		odev->recent_resets = 0;
	}
	return ++odev->recent_resets > MANY;
}

static void reset_work(struct work_struct *work)
{
	struct optinc_device *odev = container_of(work, struct optinc_device, reset_work);

	/* Whoever else is at it, or was, resets the card as well. */
	if (!READ_ONCE(odev->reset_wanted) || optinc_begin(odev))
		return;
	if (!too_often(odev)) {
		optinc_reset(odev, odev->why);
		return;
	}
	optinc_quiesce(odev);
	optinc_stop(odev);
	reap(odev);
	optinc_trouble(odev, "was reset too often");
	finish(odev, odev->why, true, -EIO);
}

/*
 * Users poll memory, so nobody may notice that the card stopped or vanished:
 * look now and then. One register read.
 */
static void health_work(struct work_struct *work)
{
	struct optinc_device *odev =
		container_of(to_delayed_work(work), struct optinc_device, health_work);
	u32 status;
	int idx;

	idx = srcu_read_lock(&odev->srcu);
	if (optinc_online(odev)) {
		status = optinc_read(odev, OPTINC_REG_STATUS);
		if (status == ~0U)
			optinc_fail(odev, "the card is gone");
		else if (!(status & OPTINC_STATUS_READY))
			optinc_fail(odev, "the card has stopped");
		else
			optinc_health_start(odev);
	}
	srcu_read_unlock(&odev->srcu, idx);
}

void optinc_health_start(struct optinc_device *odev)
{
	spin_lock_irq(&odev->state_lock);
	if (!odev->removing)
		queue_delayed_work(system_power_efficient_wq, &odev->health_work, HEALTH_PERIOD);
	spin_unlock_irq(&odev->state_lock);
}

void optinc_recovery_init(struct optinc_device *odev)
{
	/* of each card: one that is ill does not hush up another */
	ratelimit_state_init(&odev->log_limit, DEFAULT_RATELIMIT_INTERVAL, DEFAULT_RATELIMIT_BURST);
	INIT_WORK(&odev->reset_work, reset_work);
	INIT_DELAYED_WORK(&odev->health_work, health_work);
}

/*
 * PCI error recovery. Not even for an error that is not fatal is it known what
 * was lost, so the card is always reset. While the channel is frozen, the card
 * may have DMA under way: memory is given back in slot_reset().
 */
static pci_ers_result_t error_detected(struct pci_dev *pdev, pci_channel_state_t channel)
{
	struct optinc_device *odev = pci_get_drvdata(pdev);

	if (optinc_begin_pci(odev))
		return PCI_ERS_RESULT_DISCONNECT;
	trace_optinc_reset(odev->id, "pci error", (__force int)channel);
	optinc_quiesce(odev);
	odev->resets++;
	if (channel == pci_channel_io_perm_failure) {
		reap(odev);
		optinc_trouble(odev, "the channel is gone");
		finish(odev, "PCI error", true, -EIO);
		return PCI_ERS_RESULT_DISCONNECT;
	}
	return PCI_ERS_RESULT_NEED_RESET;
}

static pci_ers_result_t slot_reset(struct pci_dev *pdev)
{
	struct optinc_device *odev = pci_get_drvdata(pdev);
	int ret;

	/* Goes on with what error_detected() began, or begins: the driver may be bound anew. */
	if (optinc_begin_pci(odev))
		return PCI_ERS_RESULT_DISCONNECT;
	optinc_quiesce(odev);
	pci_restore_state(pdev);
	odev->status = optinc_read(odev, OPTINC_REG_STATUS);
	ret = optinc_hw_reset(odev);
	if (ret) {
		pci_clear_master(pdev);
		optinc_trouble(odev, "cannot be reset");
	}
	reap(odev);
	if (!ret)
		ret = optinc_bring_up(odev);
	finish(odev, "PCI error", true, ret);
	return ret ? PCI_ERS_RESULT_DISCONNECT : PCI_ERS_RESULT_RECOVERED;
}

/* Function-level and bus resets that others ask for, e.g. through sysfs */
static void reset_prepare(struct pci_dev *pdev)
{
	struct optinc_device *odev = pci_get_drvdata(pdev);

	if (optinc_begin_pci(odev))
		return;
	trace_optinc_reset(odev->id, "prepare", 0);
	optinc_quiesce(odev);
	odev->resets++;
	optinc_stop(odev);
	reap(odev);
}

static void reset_done(struct pci_dev *pdev)
{
	struct optinc_device *odev = pci_get_drvdata(pdev);

	/* GONE, or error recovery has it */
	if (!READ_ONCE(odev->pci_owned))
		return;
	finish(odev, "function reset", false, optinc_bring_up(odev));
}

const struct pci_error_handlers optinc_err_handlers = {
	.error_detected	= error_detected,
	.slot_reset	= slot_reset,
	.reset_prepare	= reset_prepare,
	.reset_done	= reset_done,
};

static int optinc_suspend(struct device *dev)
{
	struct optinc_device *odev = dev_get_drvdata(dev);

	if (optinc_begin_pci(odev))
		return 0;
	optinc_quiesce(odev);
	optinc_stop(odev);
	reap(odev);
	return 0;
}

static int optinc_resume(struct device *dev)
{
	struct optinc_device *odev = dev_get_drvdata(dev);

	if (READ_ONCE(odev->pci_owned))
		finish(odev, "sleep", false, optinc_bring_up(odev));
	return 0;
}

const struct dev_pm_ops optinc_pm_ops = {
	SET_SYSTEM_SLEEP_PM_OPS(optinc_suspend, optinc_resume)
};

/* Reboot, power-off, kexec: no DMA into the next kernel */
void optinc_shutdown(struct pci_dev *pdev)
{
	struct optinc_device *odev = pci_get_drvdata(pdev);

	if (optinc_begin_pci(odev))
		return;
	optinc_quiesce(odev);
	optinc_stop(odev);
	pci_clear_master(pdev);
	reap(odev);
	optinc_end(odev, OPTINC_GONE);
}

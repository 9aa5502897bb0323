// SPDX-License-Identifier: GPL-2.0-only
/*
 * Admin commands, one function each: section 5.5 of the card interface.
 *
 * Handles that the card gives are not 0; a card that says otherwise, or that
 * does not know a handle of its own, is reset. All of these are called within
 * a read section of odev->srcu, or by the owner of a transition.
 */
#include "optinc.h"

static int exec(struct optinc_device *odev, u8 opcode, u32 ctx, u32 handle)
{
	struct optinc_admin_cmd cmd = {
		.opcode = opcode,
		.ctx = cpu_to_le32(ctx),
		.handle = cpu_to_le32(handle),
	};
	struct optinc_slot answer;

	return optinc_admin_exec(odev, &cmd, &answer);
}

/* The card must know what it gave us; only a region may be in use. */
static int exec_known(struct optinc_device *odev, u8 opcode, u32 ctx, u32 handle)
{
	int ret = exec(odev, opcode, ctx, handle);

	if (!ret || optinc_unanswered(ret))
		return ret;
	if (ret == -EBUSY && opcode == OPTINC_ADMIN_MR_DEREG)
		return ret;
	optinc_fail(odev, "the card does not end what it made");
	return -EIO;
}

static int create(struct optinc_device *odev, struct optinc_admin_cmd *cmd, u32 max, u32 *handle)
{
	struct optinc_slot answer;
	int ret;

	ret = optinc_admin_exec(odev, cmd, &answer);
	if (ret)
		return ret;
	if (!answer.handle || answer.handle > max) {
		optinc_fail(odev, "the card made a handle that cannot be");
		return -ENODEV;	/* it may exist all the same */
	}
	*handle = answer.handle;
	return 0;
}

/* Runs @cmd with a buffer that the card fills; all @size bytes, or -EIO. */
static int fetch(struct optinc_device *odev, struct optinc_admin_cmd *cmd, void *data, size_t size,
		 bool counted)
{
	struct optinc_buffer *buf = optinc_buffer_alloc(odev, size);
	struct optinc_slot answer;
	int ret;

	if (!buf)
		return -ENOMEM;
	cmd->addr = cpu_to_le64(buf->dma);
	cmd->length = cpu_to_le32(size);
	ret = optinc_admin_exec(odev, cmd, &answer);
	if (!ret && counted && answer.result != size)
		ret = -EIO;
	if (!ret)
		memcpy(data, buf->cpu, size);
	optinc_buffer_done(odev, buf, ret);
	return ret;
}

int optinc_cmd_identify(struct optinc_device *odev, struct optinc_hw_identify *id)
{
	struct optinc_admin_cmd cmd = { .opcode = OPTINC_ADMIN_IDENTIFY };

	return fetch(odev, &cmd, id, sizeof(*id), true);
}

int optinc_cmd_port_log(struct optinc_device *odev, struct optinc_hw_port_log *log)
{
	struct optinc_admin_cmd cmd = {
		.opcode = OPTINC_ADMIN_GET_LOG,
		.log.page = cpu_to_le32(OPTINC_LOG_PORT),
	};

	return fetch(odev, &cmd, log, sizeof(*log), true);
}

int optinc_cmd_ctx_create(struct optinc_device *odev, u32 db_page, u32 *ctx)
{
	struct optinc_admin_cmd cmd = {
		.opcode = OPTINC_ADMIN_CTX_CREATE,
		.ctx_create.db_page = cpu_to_le32(db_page),
	};

	return create(odev, &cmd, U32_MAX, ctx);
}

int optinc_cmd_ctx_destroy(struct optinc_device *odev, u32 ctx)
{
	return exec_known(odev, OPTINC_ADMIN_CTX_DESTROY, ctx, 0);
}

int optinc_cmd_mr_reg(struct optinc_device *odev, u32 ctx, const struct optinc_mr *mr,
		      struct optinc_buffer *list, u32 segments, u32 *handle)
{
	struct optinc_admin_cmd cmd = {
		.opcode = OPTINC_ADMIN_MR_REG,
		.ctx = cpu_to_le32(ctx),
		.addr = cpu_to_le64(list->dma),
		.length = cpu_to_le32(segments * sizeof(struct optinc_hw_segment)),
		.mr_reg = {
			.length = cpu_to_le64(mr->length),
			.segments = cpu_to_le32(segments),
			.access = cpu_to_le32(mr->writable ? OPTINC_MR_WRITE : 0),
		},
	};

	return create(odev, &cmd, U32_MAX, handle);
}

int optinc_cmd_mr_dereg(struct optinc_device *odev, u32 ctx, u32 mr)
{
	return exec_known(odev, OPTINC_ADMIN_MR_DEREG, ctx, mr);
}

int optinc_cmd_qp_create(struct optinc_device *odev, u32 ctx, const struct optinc_qp *qp, u32 *id)
{
	u16 vector = qp->vector ? qp->vector->index : OPTINC_NO_VECTOR;
	struct optinc_admin_cmd cmd = {
		.opcode = OPTINC_ADMIN_QP_CREATE,
		.ctx = cpu_to_le32(ctx),
		.qp_create = {
			.sq_addr = cpu_to_le64(qp->sq.dma),
			.cq_addr = cpu_to_le64(qp->cq.dma),
			.sq_entries = cpu_to_le16(qp->sq_entries),
			.cq_entries = cpu_to_le16(qp->cq_entries),
			.vector = cpu_to_le16(vector),
		},
	};

	return create(odev, &cmd, U16_MAX, id);
}

int optinc_cmd_qp_destroy(struct optinc_device *odev, u32 ctx, u32 qp)
{
	return exec_known(odev, OPTINC_ADMIN_QP_DESTROY, ctx, qp);
}

int optinc_cmd_group_join(struct optinc_device *odev, u32 ctx, const struct optinc_hw_join *join,
			  u32 *group)
{
	struct optinc_buffer *buf = optinc_buffer_alloc(odev, sizeof(*join));
	struct optinc_admin_cmd cmd = {
		.opcode = OPTINC_ADMIN_GROUP_JOIN,
		.ctx = cpu_to_le32(ctx),
		.length = cpu_to_le32(sizeof(*join)),
	};
	int ret;

	if (!buf)
		return -ENOMEM;
	memcpy(buf->cpu, join, sizeof(*join));
	cmd.addr = cpu_to_le64(buf->dma);
	ret = create(odev, &cmd, U32_MAX, group);
	/* The key stays in no free memory. */
	if (!optinc_unanswered(ret))
		memzero_explicit(buf->cpu, sizeof(*join));
	optinc_buffer_done(odev, buf, ret);
	return ret;
}

int optinc_cmd_group_query(struct optinc_device *odev, u32 ctx, u32 group,
			   struct optinc_hw_group_state *state)
{
	struct optinc_admin_cmd cmd = {
		.opcode = OPTINC_ADMIN_GROUP_QUERY,
		.ctx = cpu_to_le32(ctx),
		.handle = cpu_to_le32(group),
	};

	return fetch(odev, &cmd, state, sizeof(*state), false);
}

int optinc_cmd_group_leave(struct optinc_device *odev, u32 ctx, u32 group)
{
	return exec_known(odev, OPTINC_ADMIN_GROUP_LEAVE, ctx, group);
}

int optinc_cmd_group_abort(struct optinc_device *odev, u32 ctx, u32 group)
{
	return exec_known(odev, OPTINC_ADMIN_GROUP_ABORT, ctx, group);
}
